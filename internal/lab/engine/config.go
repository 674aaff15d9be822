package engine

import (
	"errors"
	"fmt"
)

// Errors of New and Submit.
var (
	ErrConfig  = errors.New("engine: bad config")
	ErrRequest = errors.New("engine: bad request")
	ErrTooLong = errors.New("engine: request exceeds the context length")
)

// Config describes one engine. The zero value of every field but Blocks means
// the default.
type Config struct {
	BlockSize            int   // tokens per block; default 16
	Blocks               int   // blocks of the KV cache; required
	MaxBatchTokens       int   // token budget of a step; default 8192
	MaxSeqs              int   // sequences of a step; default 256
	LongPrefillThreshold int   // largest chunk of one prompt; 0: none
	MaxModelLen          int   // tokens of prompt and answer; default and limit: what the cache holds
	MaxAdapters          int   // distinct adapters running at once; 0: no limit
	NoPrefixCache        bool  // nothing is cached, no events
	Model                Model // default Model70B
	Events               bool  // fill Result.Events
	EveryToken           bool  // fill Result.Tokens; costs a pass over the running requests per step
}

// Check returns c with defaults filled in, or an error that wraps ErrConfig.
func (c Config) Check() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.BlockSize, 16)
	def(&c.MaxBatchTokens, 8192)
	def(&c.MaxSeqs, 256)
	if c.Model == (Model{}) {
		c.Model = Model70B
	}
	for _, f := range []struct {
		name string
		v    int
	}{
		{"block size", c.BlockSize}, {"blocks", c.Blocks}, {"batch tokens", c.MaxBatchTokens},
		{"sequences", c.MaxSeqs},
	} {
		if f.v <= 0 {
			return c, fmt.Errorf("%w: %s is %d", ErrConfig, f.name, f.v)
		}
	}
	if c.LongPrefillThreshold < 0 || c.MaxModelLen < 0 || c.MaxAdapters < 0 {
		return c, fmt.Errorf("%w: negative limit", ErrConfig)
	}
	room := c.Blocks * c.BlockSize
	if c.MaxModelLen == 0 || c.MaxModelLen > room {
		c.MaxModelLen = room
	}
	return c, nil
}
