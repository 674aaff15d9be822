package answer

import "bytes"

// answeredModel finds the model's name in the first chunk of a response. Names with escapes and
// overlong names are not found.
type answeredModel struct {
	looked bool
	n      int
	name   [128]byte
}

const (
	modelMember  = `"model":`
	maxModelHead = 2 << 10
)

// write looks at the first piece only.
func (f *answeredModel) write(p []byte) {
	if f.looked {
		return
	}
	f.looked = true
	p = p[:min(len(p), maxModelHead)]
	i := bytes.Index(p, []byte(modelMember))
	if i < 0 {
		return
	}
	value, quoted := bytes.CutPrefix(bytes.TrimLeft(p[i+len(modelMember):], " "), []byte{'"'})
	end := bytes.IndexByte(value, '"')
	if !quoted || end < 0 || end > len(f.name) || bytes.IndexByte(value[:end], '\\') >= 0 {
		return
	}
	f.n = copy(f.name[:], value[:end])
}
