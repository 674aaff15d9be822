package group

// Mix spreads the bits of x (the finisher of splitmix64).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// weight is a member's weight for a source. The heaviest member with free capacity owns the source
// (rendezvous hashing with bounded loads).
func weight(member, src uint64) uint64 { return Mix(member ^ Mix(src)) }

// Outranks reports whether member a ranks before member b for a source, by the hashes of the
// members' names and of the source. IDs break ties between equal names.
func Outranks(a uint64, aID string, b uint64, bID string, src uint64) bool {
	wa, wb := weight(a, src), weight(b, src)
	if wa != wb {
		return wa > wb
	}
	return aID < bID
}
