package prefix

import "sync"

const (
	usualBytesPerToken = 4
	ratioMemory        = 64 // prompts that count
)

// ratio is the mean bytes per token of a model's prompts: an arithmetic mean at first, then an
// exponentially weighted one.
type ratio struct {
	mu   sync.Mutex
	mean float64
	n    int
}

func (r *ratio) add(v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = min(r.n+1, ratioMemory)
	r.mean += (v - r.mean) / float64(r.n)
}

func (r *ratio) get() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return usualBytesPerToken
	}
	return r.mean
}

func (m *Models) bytesPerToken(base string) float64 {
	if v, ok := m.ratios.Load(base); ok {
		return v.(*ratio).get()
	}
	return usualBytesPerToken
}

// learn records the token count that an engine reported for a rendered prompt of that many bytes.
func (m *Models) learn(target string, bytes, tokens int) {
	p := m.Model(target)
	if p == nil || tokens < 64 || bytes < tokens/4 {
		return
	}
	v, _ := m.ratios.LoadOrStore(p.Name(), new(ratio))
	v.(*ratio).add(float64(bytes) / float64(tokens))
}
