package answer

import "bytes"

// idFinder finds the id of a stored response in the head of its body, or of its
// first event. Generated text cannot forge it: inside a JSON string its quotes
// would be escaped.
type idFinder struct {
	head []byte
	id   string
	over bool // it was found, or will not be
}

const (
	idMember  = `"id":`
	idPrefix  = `"resp_`
	maxIDHead = 4 << 10
	maxID     = 256
)

func (f *idFinder) reset() { *f = idFinder{head: f.head[:0]} }

// write reads the next piece of the body.
func (f *idFinder) write(p []byte) {
	if f.over {
		return
	}
	f.head = append(f.head, p[:min(len(p), maxIDHead-len(f.head))]...)
	f.over = len(f.head) == maxIDHead
	for rest := f.head; ; {
		i := bytes.Index(rest, []byte(idMember))
		if i < 0 {
			return
		}
		rest = rest[i+len(idMember):]
		value := bytes.TrimLeft(rest, " ")
		if !bytes.HasPrefix(value, []byte(idPrefix)) {
			continue
		}
		if end := bytes.IndexByte(value[1:], '"'); end > 0 && end <= maxID {
			f.id, f.over = string(value[1:1+end]), true
			return
		}
	}
}
