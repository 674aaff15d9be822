package events

import "bytes"

// ending is how an event ends: what follows its lists. The events of a batch
// mostly end alike, byte for byte, and then the fields there are those of the
// event that was read before.
type ending struct {
	raw   []byte // in the payload
	left  int    // its fields
	event int    // index in Batch.Events of the one that was read
}

// Fields that an ending must not hold, and those that may stand before it.
const (
	listFields = 1<<fieldHashes | 1<<fieldParent | 1<<fieldTokens
	headFields = 1<<fieldUnknown | 1<<fieldHashes | 1<<fieldParent | 1<<fieldTokens
)

// endsAfter tells the field behind which events of a kind end alike.
func endsAfter(k EventKind) field {
	if k == BlockStored {
		return fieldTokens
	}
	return fieldHashes
}

// same fills e from the event that ended like p, with the same number of fields.
func (b *Batch) same(e *Event, p []byte, left int) (rest []byte, ok bool) {
	s := &b.endings[e.Kind]
	if len(s.raw) == 0 || s.left != left || !bytes.HasPrefix(p, s.raw) {
		return p, false
	}
	from := &b.Events[s.event]
	e.BlockSize, e.Group, e.LoraID, e.HasLoraID = from.BlockSize, from.Group, from.LoraID, from.HasLoraID
	e.Medium, e.LoraName, e.CacheSalt, e.SpecKind = from.Medium, from.LoraName, from.CacheSalt, from.SpecKind
	e.Locality, e.Ownership, e.Extra = from.Locality, from.Ownership, from.Extra // none
	return p[len(s.raw):], true
}
