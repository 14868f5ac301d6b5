"""Note which lines a Python process runs that a test has started; `inside/run.py` puts this folder on its path."""

import os

if os.environ.get("COMPOSER_LINES"):
    import atexit
    import json

    import coverage

    setting = json.loads(os.environ["COMPOSER_LINES"])
    library = coverage.Coverage(data_file=None, include=setting["include"], config_file=False, messages=False)
    library.start()

    def note():
        """Write the lines to a file of this process, which appears only once it is whole."""
        library.stop()
        data = library.get_data()
        lines = {path: data.lines(path) for path in data.measured_files()}
        name = os.path.join(setting["folder"], f"lines-{setting['number']}-{os.getpid()}")
        with open(f"{name}.part", "w") as file:
            json.dump({"test": setting["test"], "lines": lines}, file)
        os.rename(f"{name}.part", name)

    atexit.register(note)
