package answer

import (
	"bytes"

	"github.com/valyala/fastjson"

	"github.com/grapevine-epp/grapevine/picker/request"
)

// usageKey precedes the report in JSON bodies and in SSE data. Generated text cannot forge it,
// because quotes inside a JSON string are escaped.
const usageKey = `"usage"`

// maxUsage bounds a held report that is split between chunks.
const maxUsage = 8 << 10

var usageParsers fastjson.ParserPool

// scanPhase is the next token that the usage scanner expects.
type scanPhase uint8

const (
	scanKey    scanPhase = iota // somewhere in the body
	scanColon                   // the key was read
	scanValue                   // the colon was read
	scanObject                  // inside the report
)

// usageScanner finds usage reports in a response body in arbitrary chunks, and holds at most one
// report. It supports OpenAI completions, Responses and Anthropic messages, streamed or not.
// Several reports are merged field by field; the last one wins.
type usageScanner struct {
	phase   scanPhase
	matched int // bytes of usageKey at the end of the last chunk
	depth   int
	inText  bool // inside a string of the report
	escaped bool
	held    []byte
	fields  usageFields
}

// usageFields are the numbers of a report in the various dialects.
type usageFields struct {
	prompt, output, cached        int
	cacheRead, cacheNew           int
	promptSeen, outputSeen        bool
	cachedSeen, readSeen, newSeen bool
}

// reset prepares the scanner for another body and keeps its memory.
func (s *usageScanner) reset() {
	*s = usageScanner{held: s.held[:0]}
}

// write reads the next piece of the body.
func (s *usageScanner) write(p []byte) {
	for len(p) > 0 {
		switch s.phase {
		case scanKey:
			p = s.findKey(p)
		case scanColon, scanValue:
			p = s.afterKey(p)
		case scanObject:
			p = s.object(p)
		}
	}
}

// findKey consumes p up to and including the next key.
func (s *usageScanner) findKey(p []byte) []byte {
	if s.matched > 0 {
		rest := usageKey[s.matched:]
		n := min(len(rest), len(p))
		if string(p[:n]) == rest[:n] {
			s.matched += n
			if s.matched == len(usageKey) {
				s.matched, s.phase = 0, scanColon
			}
			return p[n:]
		}
		s.matched = 0
	}
	for at := 0; ; {
		i := bytes.Index(p[at:], []byte(usageKey[1:])) // quotes are frequent, so a search for them is slow
		if i < 0 {
			break
		}
		if i += at; i > 0 && p[i-1] == '"' {
			s.phase = scanColon
			return p[i+len(usageKey)-1:]
		}
		at = i + 1
	}
	s.matched = partialKey(p)
	return nil
}

// partialKey returns the number of bytes of usageKey at the end of p. The key has quotes only at
// both ends, so only the last quote can begin it.
func partialKey(p []byte) int {
	tail := p[max(0, len(p)-len(usageKey)+1):]
	i := bytes.LastIndexByte(tail, '"')
	if i < 0 || !bytes.HasPrefix([]byte(usageKey), tail[i:]) {
		return 0
	}
	return len(tail) - i
}

// afterKey consumes white space and the colon, and enters the report.
func (s *usageScanner) afterKey(p []byte) []byte {
	switch c := p[0]; {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
	case s.phase == scanColon && c == ':':
		s.phase = scanValue
	case s.phase == scanValue && c == '{':
		s.phase, s.depth, s.inText, s.escaped = scanObject, 0, false, false
		s.held = s.held[:0]
		return p
	default:
		s.phase = scanKey
		return p
	}
	return p[1:]
}

// object consumes the report up to its closing brace and reads it there.
func (s *usageScanner) object(p []byte) []byte {
	end := s.closing(p)
	n := end
	if end < 0 {
		n = len(p)
	}
	if len(s.held)+n > maxUsage {
		s.phase = scanKey
		return p[n:]
	}
	if end > 0 && len(s.held) == 0 {
		s.report(p[:end])
	} else {
		s.held = append(s.held, p[:n]...)
		if end > 0 {
			s.report(s.held)
		}
	}
	if end > 0 {
		s.phase = scanKey
	}
	return p[n:]
}

// closing returns the index after the brace that closes the report, -1 if it is not in p.
func (s *usageScanner) closing(p []byte) int {
	for i, c := range p {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inText && c == '\\':
			s.escaped = true
		case c == '"':
			s.inText = !s.inText
		case s.inText:
		case c == '{':
			s.depth++
		case c == '}':
			s.depth--
			if s.depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// report reads one complete report.
func (s *usageScanner) report(object []byte) {
	parser := usageParsers.Get()
	defer usageParsers.Put(parser)
	v, err := parser.ParseBytes(object)
	if err != nil {
		return
	}
	f := &s.fields
	number(v, "prompt_tokens", &f.prompt, &f.promptSeen)
	number(v, "input_tokens", &f.prompt, &f.promptSeen)
	number(v, "completion_tokens", &f.output, &f.outputSeen)
	number(v, "output_tokens", &f.output, &f.outputSeen)
	number(v.Get("prompt_tokens_details"), "cached_tokens", &f.cached, &f.cachedSeen)
	number(v.Get("input_tokens_details"), "cached_tokens", &f.cached, &f.cachedSeen)
	number(v, "cache_read_input_tokens", &f.cacheRead, &f.readSeen)
	number(v, "cache_creation_input_tokens", &f.cacheNew, &f.newSeen)
}

// maxTokens exceeds any real count, and keeps sums finite.
const maxTokens = 1 << 40

// number reads a count if it is present and plausible.
func number(v *fastjson.Value, key string, dst *int, seen *bool) {
	n := v.Get(key)
	if n == nil || n.Type() != fastjson.TypeNumber {
		return
	}
	if i, err := n.Int(); err == nil && i >= 0 && i <= maxTokens {
		*dst, *seen = i, true
	}
}

// result returns the reported usage. Anthropic's input tokens exclude tokens read from and written
// to the cache; the sum is the prompt.
func (s *usageScanner) result() request.Usage {
	f := s.fields
	u := request.Usage{
		Seen:         f.promptSeen || f.outputSeen,
		PromptTokens: f.prompt,
		OutputTokens: f.output,
		CachedSeen:   f.cachedSeen,
		CachedTokens: f.cached,
	}
	if !u.Seen {
		return request.Usage{}
	}
	if !f.cachedSeen && f.readSeen {
		u.CachedSeen, u.CachedTokens = true, f.cacheRead
		u.PromptTokens += f.cacheRead + f.cacheNew
	}
	return u
}
