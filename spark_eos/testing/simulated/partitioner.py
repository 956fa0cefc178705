"""Which partition a key goes to: as Kafka's Java client and `partitioner=murmur2_random` place it."""

from __future__ import annotations

_M, _R, _SEED, _BITS = 0x5BD1E995, 24, 0x9747B28C, 0xFFFFFFFF


def murmur2_partition(key: bytes | None, partitions: int) -> int:
    """The partition of a key; records without one all go to the first.

    Args:
        key: of the record.
        partitions: how many its topic has.
    """
    return 0 if key is None else (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    hashed = _SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _BITS
        hashed = hashed * _M & _BITS ^ (word ^ word >> _R) * _M & _BITS
    if data[whole:]:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _BITS
    hashed = (hashed ^ hashed >> 13) * _M & _BITS
    return hashed ^ hashed >> 15
