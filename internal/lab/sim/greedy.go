package sim

import (
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// greedyEnd is the mean length of answers of engines with Options.Greedy.
const greedyEnd = 200

// generateGreedy generates the response as a model at temperature 0 does: each token follows from all tokens
// before it. A prompt that ends with a part of the answer gets the rest.
func (e *Engine) generateGreedy(s *sequence, p *params, limit int) {
	tok := e.opt.Tokenizer
	state := uint64(0x9e3779b97f4a7c15)
	step := func(id uint32) {
		state ^= uint64(id) + 1
		state = (state ^ state>>30) * 0xbf58476d1ce4e5b9
		state = (state ^ state>>27) * 0x94d049bb133111eb
		state ^= state >> 31
	}
	for _, id := range s.prompt.tokens {
		step(id)
	}
	words := e.words.Words()
	s.finish = page.FinishLength
	var word []uint32
	for len(s.output) < limit {
		if !p.IgnoreEOS && len(s.output) >= p.MinTokens && state>>33%greedyEnd == 0 {
			s.finish = page.FinishStop
			break
		}
		word = tok.AppendTokens(word[:0], []byte(" "+words[state%uint64(len(words))]), false)
		id := word[0] // every word is one token
		step(id)
		s.output = append(s.output, id)
		s.text = tok.AppendText(s.text, s.output[len(s.output)-1:])
		s.ends = append(s.ends, len(s.text))
	}
	if s.cut(p.Stop) {
		s.finish = page.FinishStop
		return
	}
	if s.finish == page.FinishStop && len(s.output) < limit {
		s.output = append(s.output, tok.End())
		s.ends = append(s.ends, len(s.text))
	}
}
