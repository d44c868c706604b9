"""A network's inputs and outputs: pictures prepared as for ImageNet, random images, likely classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dwlab.problems.networks import InferenceError, Network

LONGEST = 50
"""How many times longer one side of a picture may be than the other: scaled as a whole it would fill the memory."""

# torchvision's preprocessing of ImageNet: the short side to 256, the middle 224, channels' mean and deviation.
RESIZE, CROP = 256, 224

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def random_image(network: Network, seed: int = 0) -> np.ndarray:
    """(N, C, H, W) float32 of about the size that normalised images have."""
    problem = network.layers[0].problem
    return np.random.default_rng(seed).standard_normal((problem.N, problem.C, problem.H, problem.W)).astype(np.float32)


def load_image(path: str | Path, resolution: int = CROP) -> np.ndarray:
    """A picture as torchvision prepares it for ImageNet's networks: (3, resolution, resolution) float32, normalised.

    The short side to resolution * 256/224, the middle, each channel less its mean over its deviation. Needs Pillow.
    Raises InferenceError for files that cannot be read and for those that are no pictures.
    """
    try:
        from PIL import Image
    except ImportError:
        raise InferenceError(f"{path} is read by Pillow, which is not installed: pip install pillow") from None
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except FileNotFoundError:
        raise InferenceError(f"there is no file {path}: give a picture, such as a JPEG or PNG") from None
    except Exception as error:  # Pillow raises what its decoders raise: no picture, a damaged one, one too large
        raise InferenceError(f"{path} is no picture that Pillow can read: {type(error).__name__}: {error}") from None
    short = round(resolution * RESIZE / CROP)
    width, height = picture.size
    scale = short / min(width, height)
    size = (short, int(height * scale)) if width <= height else (int(width * scale), short)
    if max(size) > LONGEST * short:
        raise InferenceError(
            f"{path} has {width} × {height} pixels: only a middle part of {resolution / max(size):.1%} of its length "
            f"would be seen. Cut out a part whose sides differ less than {LONGEST} times"
        )
    picture = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (round((side - resolution) / 2) for side in picture.size)
    pixels = np.asarray(picture.crop((left, top, left + resolution, top + resolution)), np.float32) / 255
    return ((pixels - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1).copy()


def classes(y: np.ndarray, count: int = 5) -> list[list[tuple[int, float]]]:
    """The most likely classes of each image, (number, probability), from the output (N, classes)."""
    shifted = np.exp(y.astype(np.float64) - y.max(1, keepdims=True))
    likely = shifted / shifted.sum(1, keepdims=True)
    return [[(int(one), float(row[one])) for one in np.argsort(-row)[:count]] for row in likely]
