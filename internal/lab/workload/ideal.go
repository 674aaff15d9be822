package workload

import (
	"sync"

	"github.com/grapevine-epp/grapevine/internal/lab/blockhash"
	"github.com/grapevine-epp/grapevine/internal/lab/sim"
)

// Ideal is an unbounded prefix cache. Its hits are the upper bound for any routing. It needs
// somewhat more than eight bytes per block.
type Ideal struct {
	tok  sim.Tokenizer
	size int

	mu    sync.Mutex
	known map[uint64]struct{}
}

// NewIdeal returns an empty cache with blocks of size tokens.
func NewIdeal(tok sim.Tokenizer, size int) *Ideal {
	return &Ideal{tok: tok, size: size, known: map[uint64]struct{}{}}
}

// Request returns the tokens of a prompt and how many are cached, and caches the prompt.
func (c *Ideal) Request(prompt []byte) (tokens, hit int) {
	names, tokens := c.names(prompt)
	c.mu.Lock()
	defer c.mu.Unlock()
	running := true
	for i, n := range names {
		_, ok := c.known[n]
		running = running && ok && (i+1)*c.size < tokens
		if running {
			hit += c.size
		}
		c.known[n] = struct{}{}
	}
	return tokens, hit
}

// Learn caches a prompt together with its answer.
func (c *Ideal) Learn(prompt []byte, said string) {
	names, _ := c.names(append(prompt, said...))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.known[n] = struct{}{}
	}
}

func (c *Ideal) names(text []byte) (names []uint64, tokens int) {
	ids := c.tok.AppendTokens(make([]uint32, 0, len(text)/4), text, false)
	return blockhash.Fast{}.Append(nil, ids, c.size, blockhash.Extra{}), len(ids)
}
