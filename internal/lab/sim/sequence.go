package sim

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/lab/answer"
	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/core"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/page"
)

// sequence is one choice of a response: its full text, and the job that tracks the generated part.
type sequence struct {
	prompt *prompt
	index  int // choice
	text   []byte
	ends   []int // text[:ends[i]] is the text of tokens 0..i
	output []uint32
	finish string
	job    *core.Job
}

// plan makes up the answers to a request, choice by choice.
func (e *Engine) plan(p *params, prompts []prompt, chat bool) ([]*sequence, error) {
	n := 1
	if p.N != nil {
		n = *p.N
	}
	var seqs []*sequence
	for i := range prompts {
		limit, err := p.limit(len(prompts[i].tokens), e.opt.Core.MaxModelLen, chat)
		if err != nil {
			return nil, err
		}
		if e.Faults().Answer == faults.AnswerShort {
			limit = max(limit/10, 1)
		}
		for choice := range n {
			s := &sequence{prompt: &prompts[i], index: len(seqs)}
			if e.opt.Greedy {
				e.generateGreedy(s, p, limit)
			} else {
				e.generate(s, p, prompts[i].seed.With(p.Seed, choice), limit)
			}
			s.job = e.job(s, p)
			seqs = append(seqs, s)
		}
	}
	return seqs, nil
}

// generate generates the response. It ends by itself, at a stop string, or at limit tokens.
func (e *Engine) generate(s *sequence, p *params, seed answer.Seed, limit int) {
	tok := e.opt.Tokenizer
	length := limit
	s.finish = page.FinishLength
	if natural := max(seed.Length(), p.MinTokens) + 1; !p.IgnoreEOS && natural <= limit {
		length, s.finish = natural-1, page.FinishStop
	}
	s.output = tok.AppendTokens(nil, answer.Append(nil, e.words, seed, length), false)
	if e.opt.NonCanonical > 0 {
		s.output = e.scatter(s.output, seed)
	}
	s.output = s.output[:length]
	for i := range s.output {
		s.text = tok.AppendText(s.text, s.output[i:i+1])
		s.ends = append(s.ends, len(s.text))
	}
	if s.cut(p.Stop) {
		s.finish = page.FinishStop
		return
	}
	if s.finish == page.FinishStop {
		s.output = append(s.output, tok.End())
		s.ends = append(s.ends, len(s.text))
	}
}

// scatter replaces some tokens by several smaller ones with the same text.
func (e *Engine) scatter(tokens []uint32, seed answer.Seed) []uint32 {
	tok := e.opt.Tokenizer
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	var out []uint32
	var text, back []byte
	for i := range tokens {
		text = tok.AppendText(text[:0], tokens[i:i+1])
		at := len(out)
		out = append(out, tokens[i])
		if len(text) < 2 || rng.Float64() >= e.opt.NonCanonical {
			continue
		}
		cut := 1 + rng.IntN(len(text)-1)
		out = tok.AppendTokens(out[:at], text[:cut], false)
		out = tok.AppendTokens(out, text[cut:], false)
		if back = tok.AppendText(back[:0], out[at:]); !bytes.Equal(back, text) { // not reversible: leave it
			out = append(out[:at], tokens[i])
		}
	}
	return out
}

// cut ends the answer before the first stop string in it.
func (s *sequence) cut(stops []string) bool {
	at, reach := -1, 0
	for _, stop := range stops {
		if stop == "" {
			continue
		}
		if i := strings.Index(string(s.text), stop); i >= 0 && (at < 0 || i < at) {
			at, reach = i, i+len(stop)
		}
	}
	if at < 0 {
		return false
	}
	s.text = s.text[:at]
	for i, end := range s.ends {
		s.ends[i] = min(end, at)
		if end >= reach { // this token completes the stop string
			s.output, s.ends = s.output[:i+1], s.ends[:i+1]
			return true
		}
	}
	return true
}

// job names the blocks of prompt and answer. The last token is never computed
// and so never in a block.
func (e *Engine) job(s *sequence, p *params) *core.Job {
	prompt := s.prompt.tokens
	all := make([]uint32, 0, len(prompt)+len(s.output))
	all = append(append(all, prompt...), s.output...)
	r := engine.Request{Prompt: len(prompt), Output: len(s.output), Tokens: all, Report: p.XArgs.Report == reportFull, Priority: p.Priority}
	extra := blockhash.Extra{Salt: p.CacheSalt}
	if id := e.lora.ID(p.Model); id != 0 {
		extra.LoRA, r.Adapter = p.Model, id
	}
	if extra != (blockhash.Extra{}) {
		r.Tag = &engine.Tag{LoRA: extra.LoRA, LoRAID: int(r.Adapter), Salt: extra.Salt}
	}
	size := e.opt.Core.BlockSize
	names := e.opt.Namer.Append(make([]uint64, 0, len(all)/size), all[:len(all)-1], size, extra)
	r.Blocks = make([]engine.Hash, len(names))
	for i, n := range names {
		r.Blocks[i] = engine.Hash(n)
	}
	return core.NewJob(r, s.finish == page.FinishStop)
}

// textOf returns the text of tokens [from, to).
func (s *sequence) textOf(from, to int) string {
	start := 0
	if from > 0 {
		start = s.ends[from-1]
	}
	if to == 0 {
		return ""
	}
	return string(s.text[start:s.ends[to-1]])
}
