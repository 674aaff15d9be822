package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind describes the sessions of a workload. Lengths are means in tokens of the built-in
// vocabulary.
type Kind struct {
	Name string

	// A session starts with one of Shared texts of SharedTokens each. Their popularity follows
	// Zipf's law with exponent Zipf > 1.
	Shared       int
	Zipf         float64
	SharedTokens int
	InUser       bool // the shared text is part of the first question, not a system message

	Turns       int           // mean number of turns, at least one
	UserTokens  int           // per turn
	Spread      float64       // of UserTokens: standard deviation of its logarithm
	UserRange   [2]int        // replaces UserTokens: range, uniform in the logarithm
	Answer      int           // tokens per answer
	Think       time.Duration // between an answer and the next turn
	Completions bool          // /v1/completions with a text instead of chats
}

// Workloads.
var (
	// Chat is multi-turn chat with a few system prompts.
	Chat = Kind{Name: "chat", Shared: 12, Zipf: 1.2, SharedTokens: 1500, Turns: 6, UserTokens: 80, Spread: 1, Answer: 160, Think: 6 * time.Second}
	// Documents asks a few questions about each of many long documents.
	Documents = Kind{Name: "documents", Shared: 60, Zipf: 1.1, SharedTokens: 8000, InUser: true, Turns: 3, UserTokens: 40, Spread: .7, Answer: 120, Think: 4 * time.Second}
	// Agents has long sessions that append tool results and have short answers.
	Agents = Kind{Name: "agents", Shared: 3, Zipf: 1.5, SharedTokens: 6000, Turns: 30, UserTokens: 900, Spread: 1.2, Answer: 90, Think: 1500 * time.Millisecond}
	// Mixed has single, unrelated requests of 1 KB to 1 MB.
	Mixed = Kind{Name: "mixed", Turns: 1, UserRange: [2]int{170, 170_000}, Answer: 12, Completions: true}
)

var kinds = []Kind{Chat, Documents, Agents, Mixed}

// ParseKind returns the workload of a name.
func ParseKind(name string) (Kind, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Name)
		}
		return Kind{}, fmt.Errorf("workload: unknown kind %q, want one of %q", name, names)
	}
	return kinds[i], nil
}

// maxTokens limits generated lengths to about 1 MB of text.
const maxTokens = 180_000

// user returns the length of a turn's text.
func (k *Kind) user(rng *rand.Rand) int {
	if lo, hi := float64(k.UserRange[0]), float64(k.UserRange[1]); hi > 0 {
		return int(lo * math.Pow(hi/lo, rng.Float64()))
	}
	return draw(rng, k.UserTokens, k.Spread)
}

// draw returns a log-normal length with the given mean and spread.
func draw(rng *rand.Rand, mean int, spread float64) int {
	if mean <= 0 {
		return 0
	}
	v := float64(mean) * math.Exp(spread*rng.NormFloat64()-spread*spread/2)
	return int(min(max(v, 1), maxTokens))
}

// pick returns a number below n; small numbers are more frequent.
func pick(rng *rand.Rand, n int, exponent float64) int {
	if n <= 1 {
		return 0
	}
	if exponent <= 1 {
		return rng.IntN(n)
	}
	return int(rand.NewZipf(rng, exponent, 1, uint64(n-1)).Uint64())
}
