# Jupyter: a notebook with output, plots of text and a child process is executed by a kernel.
#: deb=python3-venv pip=ipykernel,nbconvert,nbformat,jupyter-client limit=120
export IPYTHONDIR=$D JUPYTER_RUNTIME_DIR=$D/run JUPYTER_CONFIG_DIR=$D/conf JUPYTER_DATA_DIR=$D/data PYDEVD_DISABLE_FILE_VALIDATION=1
cat >n.py <<'END'
import sys, warnings
warnings.simplefilter("ignore")
import nbformat, zlib
from nbconvert.preprocessors import ExecutePreprocessor
nb = nbformat.v4.new_notebook()
cells = ["print(sum(range(100)))", "for i in range(300): print(i * 'z')", "import subprocess; print(subprocess.run(['seq', '1', '2000'], capture_output=True, text=True).stdout)",
    "x = 'w' * 500000; x", "import os; os.system('echo shell')", "1/0"]
nb.cells = [nbformat.v4.new_code_cell(c) for c in cells]
ExecutePreprocessor(timeout=60, allow_errors=True, kernel_name="python3").preprocess(nb, {"metadata": {"path": "."}})
for c in nb.cells:
    for o in c.outputs:
        text = o.get("text") or o.get("ename") or o.get("data", {}).get("text/plain", "")
        print(o.output_type, len(text), zlib.crc32(text.encode()))
END
timeout 100 "$py" n.py 2>err
echo "ended $?"
