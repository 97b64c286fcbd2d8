"""Execute the notebooks and keep their outputs: `python notebooks/execute.py [name ...]`, 5 minutes on 2 cores.

Each runs in an empty folder, without the cells tagged skip-execution: TensorBoard's starts a server. What depends on
the time or the machine is not kept, and neither are the notes that TensorFlow makes on its build.
"""

import os
import pathlib
import re
import sys
import tempfile
import time

import nbclient
import nbformat

NOTEBOOKS = pathlib.Path(__file__).parent
NOTES = re.compile(r"^(?:[IWE]0000 |WARNING: All log messages before absl::).*\n?", re.MULTILINE)


def execute(path: pathlib.Path, folder: str | os.PathLike[str], smoke: bool = False) -> nbformat.NotebookNode:
    """Return a notebook with its outputs.

    Args:
        path: The notebook.
        folder: The working directory of its code.
        smoke: Whether to train for seconds.

    Raises:
        CellExecutionError: A cell raises an exception.
    """
    variables = {name: value for name, value in os.environ.items() if name != "KERAS_SEQ_SMOKE"}
    paths = [str(NOTEBOOKS.parent.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables |= {"PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3", "TQDM_DISABLE": "1"}
    if smoke:
        variables["KERAS_SEQ_SMOKE"] = "1"
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=variables)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                output.text = NOTES.sub("", output.text)
        cell |= {"outputs": [o for o in cell.outputs if o.get("text", "-")]} if cell.cell_type == "code" else {}
    return notebook


if __name__ == "__main__":
    for notebook_path in [NOTEBOOKS / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as empty:
            nbformat.write(execute(notebook_path, empty), notebook_path)
        print(f"{notebook_path.name}: {time.monotonic() - started:.0f} s")
