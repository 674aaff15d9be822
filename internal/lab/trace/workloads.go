package trace

import "time"

// Workloads are the built-in workloads. The first models coding agents; the others differ on
// purpose. The workloads from oneapp on are worst cases for policies; their saturation is found by
// search.
var Workloads = []Workload{
	{
		Name: "agentic", Preambles: 6, Skew: 1.4, Preamble: Spread{10_000, .4, 24_000},
		First: Spread{3_000, 1, 30_000}, Turns: Spread{28, .8, 150}, Question: Spread{600, 1.3, 12_000},
		Answer: Spread{140, .9, 3_000}, Gap: Spread{3, 1, 60}, Pauses: .07, Pause: Spread{150, 1.2, 3_600},
		Limit: 110_000, Compact: Spread{5_000, .6, 15_000},
	},
	{
		Name: "coder", Preambles: 3, Skew: 0, Preamble: Spread{16_000, .2, 24_000},
		First: Spread{1_000, 1, 8_000}, Turns: Spread{45, .6, 200}, Question: Spread{900, 1, 8_000},
		Answer: Spread{220, .7, 2_000}, Gap: Spread{6, 1.2, 120}, Pauses: .05, Pause: Spread{300, .9, 2_400},
		Limit: 128_000,
	},
	{
		Name: "chat", Preambles: 12, Skew: 1.2, Preamble: Spread{900, .6, 4_000},
		First: Spread{2_500, 1.4, 60_000}, Turns: Spread{2.5, .9, 40}, Question: Spread{500, 1.3, 20_000},
		Answer: Spread{320, .7, 2_000}, Gap: Spread{35, 1, 600},
		Limit: 128_000,
	},
	{
		Name: "documents", Preambles: 20, Skew: 1.1, Preamble: Spread{600, .3, 2_000}, Documents: 150,
		Document: Spread{10_000, .9, 80_000}, First: Spread{120, .8, 2_000}, Turns: Spread{1.6, .7, 12},
		Question: Spread{100, .8, 1_000}, Answer: Spread{160, .8, 1_500}, Gap: Spread{25, .9, 300},
		Limit: 128_000,
	},
	{
		Name: "mixed", Preambles: 4, Skew: 1.3, Preamble: Spread{700, .4, 2_000},
		First: Spread{6_500, 1.1, 90_000}, Turns: Spread{1.4, .8, 20}, Question: Spread{900, 1.4, 40_000},
		Answer: Spread{260, .9, 2_000}, Gap: Spread{40, 1, 600},
		Limit: 128_000,
	},
	{
		Name: "swarm", Preambles: 10, Skew: 1.2, Preamble: Spread{7_000, .4, 20_000},
		First: Spread{5_000, .9, 30_000}, Turns: Spread{20, .9, 120}, Question: Spread{900, 1.2, 12_000},
		Answer: Spread{180, .8, 3_000}, Gap: Spread{2.5, 1, 60}, Pauses: .1, Pause: Spread{90, 1.2, 2_400},
		Limit: 80_000, Compact: Spread{8_000, .6, 20_000},
	},
	{
		Name: "review", Preambles: 8, Skew: 1.3, Preamble: Spread{4_000, .5, 12_000},
		First: Spread{12_000, .9, 60_000}, Turns: Spread{9, .8, 80}, Question: Spread{1_500, 1.2, 20_000},
		Answer: Spread{350, .8, 3_000}, Gap: Spread{8, 1.1, 120}, Pauses: .12, Pause: Spread{120, 1, 1_800},
		Limit: 110_000,
	},
	{ // every request begins with the same long system prompt
		Name: "oneapp", Preambles: 1, Preamble: Spread{16_000, 0, 0}, First: Spread{300, .8, 4_000}, Turns: Spread{1, 0, 1},
		Answer: Spread{100, .8, 1_000}, Limit: 128_000,
	},
	{
		Name: "fewapps", Preambles: 5, Skew: .8, Preamble: Spread{12_000, .5, 24_000}, First: Spread{400, .9, 6_000}, Turns: Spread{1, 0, 1},
		Answer: Spread{150, .8, 1_500}, Limit: 128_000,
	},
	{
		Name: "appchat", Preambles: 1, Preamble: Spread{12_000, 0, 0}, First: Spread{200, .9, 4_000}, Turns: Spread{4, .4, 12},
		Question: Spread{150, .9, 4_000}, Answer: Spread{250, .7, 2_000}, Gap: Spread{20, .8, 200}, Limit: 128_000,
	},
	{ // for a minute all users ask about the same new document
		Name: "flash", Preambles: 30, Skew: 1, Preamble: Spread{3_000, .8, 16_000}, First: Spread{500, 1, 8_000}, Turns: Spread{2, .6, 10},
		Question: Spread{200, 1, 4_000}, Answer: Spread{150, .8, 1_500}, Gap: Spread{20, .9, 300}, Limit: 128_000,
		Flash: Flash{Factor: 3, Tokens: 16_000, Length: time.Minute},
	},
	{ // lengths and bursts of a public chat service; time goes into decoding
		Name: "burstychat", Preambles: 40, Skew: .9, Preamble: Spread{300, .8, 2_000}, First: Spread{900, .9, 8_000}, Turns: Spread{1.5, .6, 10},
		Question: Spread{200, 1, 4_000}, Answer: Spread{210, 1, 1_200}, Gap: Spread{30, .9, 300}, Limit: 16_000, Burst: 2.5,
	},
	{ // a thousand tokens in, ten thousand out
		Name: "reasoning", Preambles: 6, Skew: .8, Preamble: Spread{600, .4, 2_000}, First: Spread{400, .8, 4_000}, Turns: Spread{1, 0, 1},
		Answer: Spread{8_000, .6, 32_000}, Limit: 64_000,
	},
	{ // agents with a few very long contexts among them
		Name: "longtail", Preambles: 4, Skew: 1, Preamble: Spread{8_000, .3, 16_000}, First: Spread{2_500, 1.5, 120_000}, Turns: Spread{12, .9, 80},
		Question: Spread{700, 1.4, 40_000}, Answer: Spread{160, .9, 2_000}, Gap: Spread{5, 1, 60}, Limit: 150_000,
	},
	{ // agents that send sub-tasks side by side
		Name: "fanout", Preambles: 3, Skew: .8, Preamble: Spread{6_000, .3, 12_000}, First: Spread{4_000, .9, 30_000}, Turns: Spread{5, .6, 20},
		Fan: Spread{5, .7, 24}, Question: Spread{600, 1, 8_000}, Answer: Spread{180, .8, 2_000}, Gap: Spread{6, .8, 60}, Limit: 100_000,
	},
	{ // one tenant sends most of the requests
		Name: "tenants", Preambles: 30, Skew: 1.4, Tenants: true, Preamble: Spread{4_000, .8, 16_000}, First: Spread{600, 1, 8_000}, Turns: Spread{3, .7, 20},
		Question: Spread{300, 1, 4_000}, Answer: Spread{160, .8, 1_500}, Gap: Spread{15, .9, 200}, Limit: 64_000, Burst: 2,
	},
	{ // a few instructions of some thousand tokens, answers of a word or two
		Name: "classify", Preambles: 4, Skew: 1, Preamble: Spread{6_000, .3, 12_000}, First: Spread{400, .8, 4_000}, Turns: Spread{1, 0, 1},
		Answer: Spread{3, .3, 8}, Limit: 64_000,
	},
	{ // one system prompt; most questions are short, some very long
		Name: "bimodal", Preambles: 1, Preamble: Spread{8_000, 0, 0}, First: Spread{300, 2.2, 60_000}, Turns: Spread{1.5, .6, 8},
		Question: Spread{200, 1, 4_000}, Answer: Spread{200, .8, 1_500}, Gap: Spread{15, .9, 200}, Limit: 120_000,
	},
	{ // more tenants with prompts of their own than all caches hold
		Name: "manytenants", Preambles: 600, Skew: .4, Tenants: true, Preamble: Spread{12_000, .4, 24_000}, First: Spread{500, .9, 6_000},
		Turns: Spread{2, .6, 10}, Question: Spread{200, 1, 2_000}, Answer: Spread{150, .8, 1_500}, Gap: Spread{15, .9, 200}, Limit: 64_000,
	},
	{ // long quiet times and crowds of sessions that begin together
		Name: "surges", Preambles: 6, Skew: 1, Preamble: Spread{6_000, .4, 12_000}, First: Spread{2_000, 1.2, 30_000}, Turns: Spread{3, .7, 20},
		Question: Spread{400, 1, 8_000}, Answer: Spread{250, .8, 2_000}, Gap: Spread{20, 1, 300}, Limit: 100_000, Burst: 6,
	},
	{ // for a tenth of the time every other request begins with a new long text
		Name: "newtext", Preambles: 30, Skew: 1, Preamble: Spread{3_000, .8, 16_000}, First: Spread{500, 1, 8_000}, Turns: Spread{1, 0, 1},
		Answer: Spread{100, .8, 1_500}, Limit: 128_000, Flash: Flash{Factor: 1, Tokens: 12_000, Length: time.Hour},
	},
}
