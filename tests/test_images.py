"""Pictures as a classifier wants them, and files that are none."""

import numpy as np
import pytest

from dwlab.inference import images
from dwlab.problems.networks import InferenceError


def test_a_picture_is_prepared_as_torchvision_does(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pictures are read by Pillow: pip install pillow")
    pixels = np.zeros((300, 500, 3), np.uint8)
    pixels[:, :250], pixels[:, 250:] = (255, 0, 0), (0, 51, 255)
    path = tmp_path / "halves.png"
    Image.fromarray(pixels).save(path)
    found = images.load_image(path)
    assert found.shape == (3, 224, 224) and found.dtype == np.float32
    np.testing.assert_allclose(found[:, 100, 50], [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], rtol=1e-5)
    np.testing.assert_allclose(
        found[:, 100, 200], [-0.485 / 0.229, (0.2 - 0.456) / 0.224, (1 - 0.406) / 0.225], rtol=1e-5
    )
    assert abs(int((found[0, 100] > 0).sum()) - 112) <= 1  # the middle was taken
    Image.fromarray(pixels[..., 0]).resize((40, 90)).save(path)  # grey, upright, smaller than what is wanted
    assert images.load_image(path, 64).shape == (3, 64, 64)


def test_files_that_are_no_pictures(tmp_path, monkeypatch):
    pytest.importorskip("PIL", reason="pictures are read by Pillow: pip install pillow")
    path = tmp_path / "cat.jpg"
    path.write_text("no picture")
    with pytest.raises(InferenceError, match="cat.jpg is no picture that Pillow can read: UnidentifiedImageError"):
        images.load_image(path)
    with pytest.raises(InferenceError, match="there is no file"):
        images.load_image(tmp_path / "none.jpg")
    with pytest.raises(InferenceError, match="is no picture"):
        images.load_image(tmp_path)
    from PIL import Image

    whole = tmp_path / "whole.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)).save(whole)
    path.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(InferenceError, match="cat.jpg is no picture that Pillow can read: OSError"):
        images.load_image(path)
    for size, words in (((5000, 1), "1 × 5000 pixels"), ((2, 101), "101 × 2 pixels")):
        Image.fromarray(np.zeros((*size, 3), np.uint8)).save(whole)
        with pytest.raises(InferenceError, match=f"whole.png has {words}: only a middle part .* less than 50 times"):
            images.load_image(whole)
    Image.fromarray(np.zeros((2, 100, 3), np.uint8)).save(whole)
    assert images.load_image(whole, 32).shape == (3, 32, 32)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InferenceError, match="Pillow, which is not installed: pip install pillow"):
        images.load_image(path)
