package engine

import (
	"errors"
	"fmt"
	"time"
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
	BlockSize            int           // tokens per block; default 16
	Blocks               int           // blocks of the KV cache; required
	MaxBatchTokens       int           // token budget of a step; default 8192
	MaxSeqs              int           // sequences of a step; default 256
	LongPrefillThreshold int           // largest chunk of one prompt; 0: none
	ByPriority           bool          // waiting requests by Request.Priority, not as they came (vLLM's --scheduling-policy priority)
	MaxModelLen          int           // tokens of prompt and response; default and maximum: the cache's capacity
	MaxAdapters          int           // distinct adapters running at once; 0: no limit
	AdapterSlots         int           // adapters that stay loaded; 0: all
	AdapterLoad          time.Duration // to load an adapter
	NoPrefixCache        bool          // disables caching and events
	Model                Model         // default Model70B
	AdmitWhole           bool          // a waiting request starts only when its whole prompt fits (vLLM from 0.23)
	Host                 Host          // a second tier of the cache; zero: none
	Noise                Noise         // of step times; zero: none
	Events               bool          // fill Result.Events
	EveryToken           bool          // fill Result.Tokens; costs a pass over the running requests per step
}

// Host is the second tier of the KV cache, in host memory. Blocks entered in the prefix cache are
// copied there and stay when the GPU's copy is evicted. A hit takes the time of Load and is not
// computed.
type Host struct {
	Blocks int
	Load   Load
}

// Noise makes steps vary: by a log-normal factor, and by pauses (garbage
// collection, compilation of a new shape) at random moments.
type Noise struct {
	Sigma      float64       // of the factor's logarithm
	PauseEvery time.Duration // mean time between pauses; 0: none
	PauseMax   time.Duration // a pause lasts between a tenth of this and all of this
	Seed       uint64
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
	if c.Host.Blocks < 0 || c.Noise.Sigma < 0 {
		return c, fmt.Errorf("%w: negative host tier or noise", ErrConfig)
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
