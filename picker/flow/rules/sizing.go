package rules

// Unit is the unit that permits count.
type Unit uint8

// Units of capacity.
const (
	// Learned permits are requests; engines' limits are learned from their gauges.
	Learned Unit = iota
	// Requests counts requests against a limit per endpoint.
	Requests
	// Tokens counts prompt tokens against a limit per endpoint.
	Tokens
	// Larger counts the larger of a request's fractions of both limits.
	Larger
)

// Sizing configures the pool's capacity.
type Sizing struct {
	Unit     Unit
	Requests int64 // limit per endpoint, for Requests and Larger
	Tokens   int64 // for Tokens and Larger
	Queue    int64 // for Learned: requests that may wait in an engine
}

// WholeShare is the number of permits of an engine with both limits. A request takes the larger of
// its fractions.
const WholeShare = int64(1_000_000)

// Permits returns the permits that a request takes.
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
