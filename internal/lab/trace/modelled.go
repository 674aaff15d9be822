package trace

import (
	"fmt"
	"math/rand/v2"
)

// Shared models the shared prefixes of traces that have only lengths. Each session starts with one
// of Prompts system prompts of Tokens tokens, chosen by Zipf's law. This is an assumption; such
// traces do not record prefixes.
type Shared struct {
	Prompts int // 0: sessions share nothing
	Tokens  int
}

// Upper limits, which bound the memory of a trace.
const (
	mostPrompts      = 10_000
	mostPromptTokens = 1 << 20
)

func (s Shared) check() error {
	if s.Prompts < 0 || s.Prompts > mostPrompts || s.Tokens < 0 || s.Tokens > mostPromptTokens || (s.Prompts > 0) != (s.Tokens > 0) {
		return fmt.Errorf("%w: %d system prompts of %d tokens: want at most %d of at most %d", ErrTrace, s.Prompts, s.Tokens, mostPrompts, mostPromptTokens)
	}
	return nil
}

func (s Shared) String() string {
	if s.Prompts == 0 {
		return "sessions share nothing"
	}
	return fmt.Sprintf("each session begins with one of %d system prompts of %d tokens, by Zipf's law", s.Prompts, s.Tokens)
}

// contexts assigns blocks to prompts of unknown text. A session's prompt continues the session's
// earlier context as far as its length permits. The random numbers depend only on the number of
// earlier sessions.
type contexts struct {
	shared    Shared
	blockSize int
	rng       *rand.Rand
	system    [][]Block
	of        map[int32][]Block // longest context so far, by session
	blocks    int
}

func newContexts(o *ReadOptions) contexts {
	return contexts{
		shared: o.Shared, blockSize: o.BlockSize, rng: rand.New(rand.NewPCG(0x57a7e, 0)),
		system: make([][]Block, o.Shared.Prompts), of: map[int32][]Block{},
	}
}

// next returns the blocks of a prompt that starts with had, the last one possibly partial, and the
// longest context of its session.
func (c *contexts) next(had []Block, tokens int) (blocks, longest []Block) {
	want := (tokens + c.blockSize - 1) / c.blockSize
	longest = c.extend(had[:len(had):len(had)], want)
	return longest[:want:want], longest
}

// begin returns the full blocks of a system prompt.
func (c *contexts) begin() []Block {
	if c.shared.Prompts == 0 {
		return nil
	}
	which := zipf(c.rng, c.shared.Prompts, 1)
	if c.system[which] == nil {
		c.system[which] = c.extend([]Block{}, c.shared.Tokens/c.blockSize)
	}
	return c.system[which]
}

func (c *contexts) extend(chain []Block, to int) []Block {
	for len(chain) < to {
		chain = append(chain, Block(c.blocks))
		c.blocks++
	}
	return chain
}
