# pytest with xdist: four workers by pipes.
#: deb=python3-venv pip=pytest-xdist limit=90
cat >test_many.py <<'END'
import pytest, time
@pytest.mark.parametrize("i", range(150))
def test_one(i):
    print("x" * i * 20); assert i != 77
END
timeout 80 "$py" -m pytest -q -n 4 -p no:cacheprovider test_many.py >log 2>&1
echo "status $?"
grep -oE '[0-9]+ failed, [0-9]+ passed' log
