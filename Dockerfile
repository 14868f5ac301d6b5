# The demo, the trainer and every command in one image:
#
#     docker build --tag composer-hub .
#     docker run --rm composer-hub                                            # the demo
#     docker run --rm --user "$(id -u)" --volume ~/.claude/projects:/sessions:ro --volume "$PWD":/out \
#         composer-hub report /sessions --out /out/agent-report.html
#     docker run --rm --gpus all --env HF_TOKEN --entrypoint accelerate composer-hub launch \
#         /opt/composer_hub/scripts/train.py --config /opt/composer_hub/configs/dr_grpo.yaml --repo me/student
#
# PyPI's torch brings CUDA. For a smaller image without it, build with
# `--build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu`.
FROM python:3.11-slim
ARG PIP_EXTRA_INDEX_URL=""
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap git && rm -rf /var/lib/apt/lists/*
COPY . /opt/composer_hub
RUN cd /opt/composer_hub && python -m pip install --no-cache-dir --constraint constraints.txt ".[train,report,space,tasks]"
# No command needs to be root, and any user may have this home: see --user above.
ENV HOME=/home/composer
RUN mkdir --mode 1777 "$HOME"
WORKDIR /home/composer
USER 1000
ENTRYPOINT ["composer-hub"]
CMD ["demo"]
