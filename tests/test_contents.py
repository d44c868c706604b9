"""How `make lab` reads and saves notebooks: one that is only read, and saved by JupyterLab, stays as it is on disk."""

import asyncio
import sys

import nbformat
import pytest
from nbformat.sign import MemorySignatureStore

server = pytest.importorskip("jupyter_server.services.contents.largefilemanager")
HERE = sys.version.split()[0]


@pytest.fixture
def manager(tmp_path):
    from dwlab.widgets.contents import Lessons

    made = Lessons(root_dir=str(tmp_path))
    made.notary.store = MemorySignatureStore()  # not this person's, where signed ones stay trusted
    return made


def notebook(**info):
    metadata = {"language_info": {"name": "python", **info}} if info else {}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="a")], metadata=metadata)


def reopened(manager, content):
    """What JupyterLab is given for a notebook on disk, after it has opened, completed and saved it."""
    model = asyncio.run(manager.get("a.ipynb"))
    model["content"]["metadata"]["language_info"] = dict(content)
    asyncio.run(manager.save(model, "a.ipynb"))


@pytest.mark.parametrize("version", ["3.11.7", "3.13.0", HERE])
def test_a_lesson_that_is_read_is_as_the_kernel_says_on_the_page_and_as_it_was_on_disk(manager, tmp_path, version):
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook(version=version, file_extension=".py"), path)
    before = path.read_bytes()
    info = asyncio.run(manager.get("a.ipynb"))["content"]["metadata"]["language_info"]
    assert info == {"name": "python", "version": HERE, "file_extension": ".py"}, "nothing is left for JupyterLab to set"
    reopened(manager, info)
    assert path.read_bytes() == before


def test_lessons_are_trusted_and_other_notebooks_are_not(manager, tmp_path):
    (tmp_path / "notebooks").mkdir()
    names = ("notebooks/12_shared_memory.ipynb", "notebooks/of_another.ipynb", "12_shared_memory.ipynb")
    for name in names:
        given = notebook(version=HERE)
        given.cells[0].outputs = [nbformat.v4.new_output("display_data", {"text/html": "<svg></svg>"})]
        nbformat.write(given, tmp_path / name)
    before = (tmp_path / names[0]).read_bytes()
    models = [asyncio.run(manager.get(name)) for name in names]
    assert [one["content"]["cells"][0]["metadata"]["trusted"] for one in models] == [True, False, False]
    asyncio.run(manager.save(models[0], names[0]))
    assert (tmp_path / names[0]).read_bytes() == before, "which is no part of the file"


def test_a_new_notebook_and_one_of_another_language_are_saved_as_they_come(manager, tmp_path):
    for name, content in (("new", notebook(version="3.12.1")), ("bare", notebook())):
        model = {"type": "notebook", "format": "json", "content": content}
        asyncio.run(manager.save(model, f"{name}.ipynb"))
        assert nbformat.read(tmp_path / f"{name}.ipynb", as_version=4).metadata == content.metadata
    nbformat.write(notebook(name="julia", version="1.9"), tmp_path / "a.ipynb")
    assert asyncio.run(manager.get("a.ipynb"))["content"]["metadata"]["language_info"]["version"] == "1.9"
    reopened(manager, {"name": "julia", "version": "1.10"})
    assert nbformat.read(tmp_path / "a.ipynb", as_version=4).metadata["language_info"]["version"] == "1.10"


def test_files_and_folders_are_read_as_ever(manager, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert asyncio.run(manager.get("a.txt"))["content"] == "text"
    assert asyncio.run(manager.get(""))["type"] == "directory"
    asyncio.run(manager.save({"type": "file", "format": "text", "content": "more"}, "a.txt"))
    assert (tmp_path / "a.txt").read_text() == "more"
