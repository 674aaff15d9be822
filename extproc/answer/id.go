package answer

import "bytes"

// idFinder finds the id of a stored response in the head of its body or first event. Generated text
// cannot forge it, because quotes inside a JSON string are escaped.
type idFinder struct {
	head []byte
	at   int // the part before it is done
	id   string
	over bool // found, or no longer possible
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
	for {
		i := bytes.Index(f.head[f.at:], []byte(idMember))
		if i < 0 {
			f.at = max(f.at, len(f.head)-len(idMember)+1) // keep a possible beginning
			return
		}
		member := f.at + i
		value := bytes.TrimLeft(f.head[member+len(idMember):], " ")
		f.at = member // until enough of the value is available
		switch {
		case bytes.HasPrefix(value, []byte(idPrefix)):
			end := bytes.IndexByte(value[1:], '"')
			if end > 0 && end <= maxID {
				f.id, f.over = string(value[1:1+end]), true
				return
			}
			if end < 0 && len(value) <= maxID {
				return
			}
		case len(value) < len(idPrefix) && bytes.HasPrefix([]byte(idPrefix), value):
			return
		}
		f.at = member + len(idMember)
	}
}
