package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// corpus generates chat bodies of one size. The requests of a conversation begin with the same text
// and end with different questions. It is read-only after creation.
type corpus struct {
	size     int
	prefixes [][]byte // per conversation, up to the text of the last message
}

// tail ends every body.
const tail = `"}],"max_tokens":256,"stream":true,"stream_options":{"include_usage":true}}`

// Seeds of the common text and of the conversations'.
const seedCommon, seedConversation = 1, 1000

func newCorpus(o Options) *corpus {
	c := &corpus{size: o.BodySize, prefixes: make([][]byte, o.Conversations)}
	shared := min(int(float64(o.BodySize)*o.Shared), o.BodySize-len(tail)-len(`"},{"role":"user","content":"`)-64)
	head := `{"model":` + strconv.Quote(o.Model) + `,"messages":[{"role":"system","content":"`
	common := appendText([]byte(head), max(shared/4, len(head)), newRand(seedCommon))
	for i := range c.prefixes {
		c.prefixes[i] = conversation(common, shared, newRand(seedConversation+uint64(i)))
	}
	return c
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// conversation continues the common system prompt with turns up to about size
// bytes and opens the last message.
func conversation(common []byte, size int, rng *rand.Rand) []byte {
	b := append(make([]byte, 0, size+64), common...)
	roles := [2]string{"user", "assistant"}
	for turn := 0; len(b) < size-smallestBody; turn++ {
		b = append(b, `"},{"role":"`...)
		b = append(b, roles[turn%2]...)
		b = append(b, `","content":"`...)
		b = appendText(b, min(len(b)+200+rng.IntN(1200), size), rng)
	}
	b = append(b, `"},{"role":"user","content":"`...)
	return appendText(b, size, rng)
}

// appendRequest appends the body of request number n to dst, of exactly the
// corpus's size.
func (c *corpus) appendRequest(dst []byte, n uint64) []byte {
	start := len(dst)
	dst = append(dst, c.prefixes[n%uint64(len(c.prefixes))]...)
	dst = append(dst, "question "...)
	dst = strconv.AppendUint(dst, n, 10)
	dst = append(dst, ": "...)
	end := start + c.size - len(tail)
	for len(dst) < end {
		const filler = "and then, what comes next? "
		dst = append(dst, filler[:min(len(filler), end-len(dst))]...)
	}
	return append(dst, tail...)
}

// Syllables of words, and special text that JSON contains now and then: escapes, code, other
// scripts.
var (
	syllables = [...]string{"ka", "lo", "mi", "ter", "an", "so", "vel", "ri", "dun", "pe", "gra", "sti", "no", "hal", "we", "cor"}
	asides    = [...]string{`\n`, `\n\n`, ` \"quoted\" `, `\n    return f(x) + 1;\n`, " größer als ", " 图书馆在哪里。 ", " 1,024.5 ", " C:\\\\temp\\\\log "}
)

// appendText appends the inside of a JSON string until dst has about size
// bytes, never fewer.
func appendText(dst []byte, size int, rng *rand.Rand) []byte {
	for words := 1; len(dst) < size; words++ {
		for range 1 + rng.IntN(3) {
			dst = append(dst, syllables[rng.IntN(len(syllables))]...)
		}
		switch {
		case words%40 == 0:
			dst = append(dst, asides[rng.IntN(len(asides))]...)
		case words%11 == 0:
			dst = append(dst, ". "...)
		default:
			dst = append(dst, ' ')
		}
	}
	return dst
}

// response makes a streamed chat answer of about size bytes that ends with the
// usage. prompt is the number of tokens of the prompt.
func response(size, prompt int, cached bool) []byte {
	const before, after = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"`, `"},"finish_reason":null}]}` + "\n\n"
	const event = len(before) + len(after) + len("word ")
	details := ""
	if cached {
		details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, prompt*3/4)
	}
	end := fmt.Sprintf(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":8,"total_tokens":%d%s}}`+"\n\ndata: [DONE]\n\n", prompt, prompt+8, details)
	var b []byte
	words := rand.New(rand.NewPCG(1, 2)) // text that repeats itself would be examined as that of a faulty engine
	for len(b)+event+len(end) <= size {
		b = append(b, before...)
		for range len("word") {
			b = append(b, byte('a'+words.IntN(26)))
		}
		b = append(append(b, ' '), after...)
	}
	return append(b, end...)
}
