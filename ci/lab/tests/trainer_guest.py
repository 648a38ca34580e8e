"""Runs in the guest: opens the files of /data as a trainer does, and prints digests of what it sees as JSON."""

import hashlib
import json
import struct
import sys

import numpy as np
import safetensors


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def tokens():
    # megatron-core's _IndexReader: magic, version, type, counts; lengths, first bytes, documents.
    index = open("/data/source/tokens/o200k.idx", "rb").read()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, code, documents) == (b"MMIDIDX\0\0", 1, 4, sequences + 1)
    lengths = np.frombuffer(index, np.int32, sequences, 34)
    pointers = np.frombuffer(index, np.int64, sequences, 34 + lengths.nbytes)
    ids = np.memmap("/data/source/tokens/o200k.bin", np.int32, "r")
    told = {}
    for number, (first_byte, length) in enumerate(zip(pointers, lengths)):
        told[f"document {number}"] = sha256(ids[first_byte // 4 : first_byte // 4 + length].tobytes())
    several = hashlib.sha256()
    for number in range(200):
        first = number * 7919 % (len(ids) - 4096)
        several.update(ids[first : first + 4096].tobytes())
    return told | {"sequences": several.hexdigest()}


def weights():
    with open("/data/source/model.safetensors", "rb") as file:
        tensors = safetensors.deserialize(file.read())
    return {name: [info["dtype"], list(info["shape"]), sha256(bytes(info["data"]))] for name, info in tensors}


def arrays():
    return (np.load(f"/data/{view}/embeddings.npy", mmap_mode="r") for view in ("source", "f16"))


def embeddings():
    wide, narrow = arrays()
    told = {"rounded": sha256(wide.astype(np.float16).tobytes())}
    for name, array in (("f32", wide), ("f16", narrow)):
        told[name] = [str(array.dtype), list(array.shape), sha256(array.tobytes())]
    return told


def errors():
    wide, narrow = (array.astype(np.float64) for array in arrays())
    off = np.abs(narrow - wide)
    return {"largest": off.max(), "rms": np.sqrt((off**2).mean())}


print(json.dumps({"tokens": tokens, "weights": weights, "embeddings": embeddings, "errors": errors}[sys.argv[1]]()))
