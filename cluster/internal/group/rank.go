package group

// Mix spreads the bits of x (the finisher of splitmix64).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// weight is a member's weight for a source. The heaviest that has room owns it (rendezvous
// hashing with bounded loads).
func weight(member, src uint64) uint64 { return Mix(member ^ Mix(src)) }

// Outranks reports whether member a comes before member b for a source, by the hashes of their names
// and of its own; IDs tell namesakes apart.
func Outranks(a uint64, aID string, b uint64, bID string, src uint64) bool {
	wa, wb := weight(a, src), weight(b, src)
	if wa != wb {
		return wa > wb
	}
	return aID < bID
}
