package gate

import (
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/bench"
)

// Kind is the way a row is compared.
type Kind string

// Kinds.
const (
	Ratio Kind = "ratio" // against the no-op or the calibration loop, with an error
	Count Kind = "count" // exact: must not rise
	Level Kind = "level" // an absolute figure that depends little on the machine's load
)

// Result is one measured row.
type Result struct {
	Name     string
	Kind     Kind
	Unit     string
	Estimate Estimate
	// Direct compares with a build of the stored commit in the same run: 1 is no change.
	// It is set for rows of CPU per request.
	Direct *Estimate
	// Grown lists the functions whose CPU time per request grew, if the row is worse.
	Grown []string
}

// load is one row of CPU per request against the no-op.
type load struct {
	name  string
	short bool // part of the short form
	opts  bench.Options
	slice time.Duration
}

// group is a stand with the rows that are measured on it.
type group struct {
	name  string
	stand Stand
	loads []load
	extra []func(*session, *running) error // further rows
	short []func(*session, *running) error // further rows of the short form
}

// kb are bodies of n KB at c streams, as fast as answers come.
func kb(n, c int) bench.Options {
	o := bench.Options{BodySize: n << 10, Concurrency: c, Conversations: 50, Shared: .75, Connections: 4, NoCachedTokens: true}
	if n >= 400 {
		o.Conversations = 8
	}
	return o
}

// paced are bodies of n KB at 100 requests per second.
func paced(n int) bench.Options {
	o := kb(n, 16)
	o.Rate = 100
	return o
}

// chunks are requests of 1 KB whose answers have many small chunks.
func chunks(pace time.Duration) bench.Options {
	o := kb(1, 16)
	o.ResponseSize, o.ResponseChunk, o.ResponsePace = 200*136, 136, pace
	return o
}

const (
	atFullLoad = 300 * time.Millisecond
	atPace     = 2 * time.Second
)

var groups = []group{
	{name: "8x0", stand: Stand{Endpoints: 8}, loads: []load{
		{"1KB/16", false, kb(1, 16), atFullLoad},
		{"1KB/100s", false, paced(1), atPace},
		{"40KB/16", false, kb(40, 16), atFullLoad},
		{"400KB/16", false, kb(400, 16), atFullLoad},
		{"chunks/paced", false, chunks(10 * time.Millisecond), 3 * atPace},
	}, extra: []func(*session, *running) error{(*session).streamMemory}},
	{name: "8x1", stand: Stand{Endpoints: 8, Holders: 1}, loads: []load{
		{"40KB/16", false, kb(40, 16), atFullLoad},
		{"40KB/100s", false, paced(40), atPace},
	}},
	{name: "8x8", stand: Stand{Endpoints: 8, Holders: 8}, loads: []load{
		{"1KB/16", true, kb(1, 16), atFullLoad},
		{"40KB/16", true, kb(40, 16), atFullLoad},
		{"400KB/4", true, kb(400, 4), atFullLoad},
		{"chunks/16", true, chunks(0), atFullLoad},
		{"1KB/100s", false, paced(1), atPace},
		{"40KB/100s", false, paced(40), atPace},
		{"400KB/16", false, kb(400, 16), atFullLoad},
	}, short: []func(*session, *running) error{(*session).firstDecision, (*session).answerMessages, (*session).idleness, (*session).profile},
		extra: []func(*session, *running) error{(*session).reloadMemory, (*session).envoy}},
	{name: "40x40", stand: Stand{Endpoints: 40, Holders: 40}, loads: []load{
		{"40KB/16", true, kb(40, 16), atFullLoad},
		{"1KB/16", false, kb(1, 16), atFullLoad},
	}},
	{name: "100x0", stand: Stand{Endpoints: 100}, loads: []load{{"1KB/16", false, kb(1, 16), atFullLoad}}},
	// Pages that are read every two seconds leave the decision as a large part.
	{name: "200x0", stand: Stand{Endpoints: 200, Flags: []string{"--scrape-slow", "2s", "--scrape-fast", "2s"}}, loads: []load{{"1KB/16", true, kb(1, 16), atFullLoad}}},
	{name: "1000x0", stand: Stand{Endpoints: 1000}, loads: []load{{"1KB/16", false, kb(1, 16), 2 * time.Second}}},
	{name: "10000x0", stand: Stand{Endpoints: 10_000}, loads: []load{{"1KB/16", false, kb(1, 16), 2 * time.Second}}},
	{name: "group", stand: Stand{Endpoints: 8, Holders: 8, Members: 3}, extra: []func(*session, *running) error{(*session).groupIdleness, (*session).others}},
}

// Sizes of pools of the decision kernel.
var (
	shortPools = []int{8, 100, 1000}
	allPools   = []int{8, 100, 1000, 10_000}
)
