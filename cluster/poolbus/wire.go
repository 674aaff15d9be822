package poolbus

import (
	"errors"
	"slices"
)

// A message between replicas begins with the length of a pool's name in one byte, and the name. The
// rest is a frame of this pool. The empty name announces pools: the rest is a version and the names,
// each with its length in front.
const (
	announceVersion = 1
	// MaxName is the longest name of a pool in bytes, as in Kubernetes.
	MaxName = 253
	// MaxPools is the maximum number of pools of one replica.
	MaxPools = 256
)

var errMessage = errors.New("poolbus: malformed message")

// appendMessage appends the message for a frame of a pool.
func appendMessage(b []byte, pool string, frame []byte) []byte {
	b = append(b, byte(len(pool)))
	b = append(b, pool...)
	return append(b, frame...)
}

// splitMessage returns the parts of a message, which both point into b.
func splitMessage(b []byte) (pool, frame []byte, err error) {
	if len(b) == 0 || int(b[0]) > MaxName || int(b[0]) > len(b)-1 {
		return nil, nil, errMessage
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], nil
}

// appendAnnouncement appends the message that announces pools.
func appendAnnouncement(b []byte, pools []string) []byte {
	b = append(b, 0, announceVersion)
	for _, name := range pools {
		b = append(b, byte(len(name)))
		b = append(b, name...)
	}
	return b
}

// readAnnouncement reads the names of an announcement without its first byte. They are sorted and
// distinct.
func readAnnouncement(b []byte) (pools []string, err error) {
	if len(b) == 0 || b[0] != announceVersion {
		return nil, errMessage
	}
	for b = b[1:]; len(b) > 0; {
		name, rest, err := splitMessage(b)
		if err != nil || len(name) == 0 || len(pools) == MaxPools {
			return nil, errMessage
		}
		pools, b = append(pools, string(name)), rest
	}
	slices.Sort(pools)
	return slices.Compact(pools), nil
}
