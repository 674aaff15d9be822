package rules

// Unit says what a place is.
type Unit uint8

// Units of capacity.
const (
	// Learned places are requests; engines' limits are found by watching them.
	Learned Unit = iota
	// Requests are counted against a limit per endpoint.
	Requests
	// Tokens of prompts are counted against a limit per endpoint.
	Tokens
	// Larger of the shares of both limits.
	Larger
)

// Sizing says how large the pool is.
type Sizing struct {
	Unit     Unit
	Requests int64 // limit per endpoint, of Requests and Larger
	Tokens   int64 // of Tokens and Larger
	Queue    int64 // of Learned: requests that may wait in an engine
}

// WholeShare is how many places an engine has whose limits are both counted: a
// request takes the larger of its shares of them.
const WholeShare = int64(1_000_000)

// Permits returns how many places a request takes.
func (s Sizing) Permits(tokens int) int64 {
	switch s.Unit {
	case Tokens:
		return max(int64(tokens), 1)
	case Larger:
		return max(WholeShare/s.Requests, int64(tokens)*WholeShare/s.Tokens, 1)
	default:
		return 1
	}
}
