"""A term from scores, as distilabel's: cross entropy to rated generations, of which the better ones weigh more.

ComposerTrainer(…, terms=[Ratings(0.1, rows, tokenizer)]), rows with `instruction`, `generations` and `ratings`.
"""

import torch

from composer_hub.train import Stream, Term, answer_tensors


class Ratings(Term):
    name = "ratings"

    def __init__(self, weight, rows, tokenizer, *, batch_size=2, seed=0):
        super().__init__(weight, loader=Stream(rows, batch_size, seed))
        self.tokenizer = tokenizer

    def tensors(self, rows):
        chats = [[{"role": "user", "content": row["instruction"]}] for row in rows]
        prompts = self.tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=False)
        pairs = [(prompt, text) for prompt, row in zip(prompts, rows, strict=True) for text in row["generations"]]
        answers = [(prompt, self.tokenizer(text + self.tokenizer.eos_token)["input_ids"]) for prompt, text in pairs]
        return answer_tensors(answers) | {"share": torch.cat([torch.tensor(row["ratings"]).softmax(0) for row in rows])}

    def count(self, rows):
        return rows["share"].sum()  # 1 for each row

    def values(self, model, rows, hidden):
        logps, lengths, entropies = model.answer_logps(rows)
        return -rows["share"] * logps / lengths, {"entropy": entropies}
