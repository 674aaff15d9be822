package request

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// kinds maps path suffixes to kinds; the first match counts.
var kinds = [...]struct {
	path string
	kind Kind
}{
	{"/v1/chat/completions", KindChat},
	{"/v1/completions", KindCompletions},
	{"/v1/responses", KindResponses},
	{"/v1/messages", KindMessages},
	{"/v1/embeddings", KindEmbeddings},
	{"/inference/v1/generate", KindGenerate},
}

// KindOf returns the kind of a request path, which may have a query. A prefix before the known path
// is accepted, because gateways route by prefix. The prefix may stand for the version, which the
// gateway inserts on the way to the engine. A match without a version is not sure, because other
// calls end in the same word.
//
// Engines decode percent-encoding before routing, so an encoded letter does not change the call.
func KindOf(path string) (kind Kind, sure bool) {
	path, _, _ = strings.Cut(path, "?")
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	if path == "/generate" { // exact, since other engines use the word as well
		return KindGenerate, true
	}
	for _, k := range kinds {
		if strings.HasSuffix(path, k.path) {
			return k.kind, true
		}
	}
	for _, k := range kinds {
		if short, ok := strings.CutPrefix(k.path, "/v1"); ok && strings.HasSuffix(path, short) {
			return k.kind, false
		}
	}
	return KindOther, true
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// gzipped is the prefix of a gzip body.
var gzipped = []byte{0x1f, 0x8b}

// Parse fills r from its Path, Headers and Body in one scan. It copies nothing of the prompt:
// r.Prompt holds its position. It returns a *Error with ReasonBadRequest if the body of an
// inference request is not JSON. Unknown paths are accepted; their bodies are read if they are JSON
// or a form. The last of duplicate keys counts, as in engines.
func Parse(r *Request) error {
	readHeaders(r)
	var sure bool
	r.Kind, sure = KindOf(r.Path)
	at, ok := scanBody(r)
	if !sure && (!ok || r.Model == "" || !r.Prompt.Main.Found()) {
		r.Kind = KindOther
	}
	if r.Kind == KindOther && !ok {
		takeForm(r)
	}
	if r.Kind != KindOther && !ok {
		if at == 0 && bytes.HasPrefix(r.Body, gzipped) {
			return Errorf(ReasonBadRequest, "request body is gzip, but the header Content-Encoding is missing")
		}
		return Errorf(ReasonBadRequest, "request body is not valid JSON (at byte %d)", at)
	}
	r.NoModel = r.Model == ""
	finishRequest(r)
	return nil
}

// ParsePrefix fills r from the first bytes of a body. A truncated prompt is used as far as
// available. A model after the cut stays unknown.
func ParsePrefix(r *Request) {
	readHeaders(r)
	var sure bool
	r.Kind, sure = KindOf(r.Path)
	if scanBody(r); !sure && !r.Prompt.Main.Found() {
		r.Kind = KindOther
	}
	if r.Kind == KindOther && r.Model == "" {
		takeForm(r)
	}
	finishRequest(r)
}

// scanBody reads the body's members. If the body is malformed it returns the position and false;
// members read so far remain.
func scanBody(r *Request) (at int, ok bool) {
	s := scanners.Get().(*scanner)
	defer scanners.Put(s)
	r.Previous = previousOf(r.Path)
	s.b, s.rested = r.Body, 0
	defer func() { s.b = nil }()
	i := s.space(bom(s.b))
	r.Members, r.KVTransfer, r.Whole, r.Reports, r.reads, r.Urgency = 0, false, false, false, reads{}, Span{}
	if i >= len(s.b) || s.b[i] != '{' {
		r.KVTransfer = wide(s.b)
		return i, false
	}
	s.deep = false
	m := s.members(i)
	for m.next() {
		r.Members++
		takeMember(r, s, m.Key, m.Val)
	}
	if end := m.end(); end >= 0 {
		i = s.space(end)
		return i, i == len(s.b)
	}
	if s.cut() && m.Key.Found() && m.Val[0] < len(s.b) {
		takeCut(r, s, m.Key, Span{m.Val[0], len(s.b)})
	}
	r.KVTransfer = r.KVTransfer || s.deep || wide(s.b)
	return s.bad, false
}

// wide reports whether a body is UTF-16 or UTF-32 JSON. Engines written in Python accept it like
// UTF-8, so it could evade inspection.
func wide(b []byte) bool {
	b = b[:min(len(b), 64)]
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) || bytes.HasPrefix(b, []byte("\x00\x00\xfe\xff")) {
		return true
	}
	if bytes.IndexByte(b[:min(len(b), 4)], 0) < 0 {
		return false
	}
	for _, c := range b {
		switch c {
		case 0, ' ', '\t', '\n', '\r':
		default:
			return c == '{'
		}
	}
	return len(b) > 0 // only white space in the examined prefix
}

// bom returns the length of the body's byte order mark. Engines accept one.
func bom(b []byte) int {
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return 3
	}
	return 0
}

// takeCut handles a member whose value is truncated. Only parts of the prompt are useful then.
func takeCut(r *Request, s *scanner, key, val Span) {
	name := plainKey(s.b, key)
	if holdsPrompt(r.Kind, name) || string(name) == "system" || string(name) == "instructions" {
		takeMember(r, s, key, val)
	}
}

// holdsPrompt reports whether a member holds the prompt in requests of a kind.
func holdsPrompt(k Kind, name []byte) bool {
	switch string(name) {
	case "messages":
		return k == KindChat || k == KindMessages || k == KindEmbeddings
	case "prompt":
		return k == KindCompletions || k == KindGenerate
	case "input":
		return k == KindResponses || k == KindEmbeddings
	case "token_ids", "input_ids", "text":
		return k == KindGenerate
	default:
		return false
	}
}

// plainKey returns the key without quotes and escapes.
func plainKey(b []byte, key Span) []byte {
	k := b[key[0]+1 : key[1]-1]
	if bytes.IndexByte(k, '\\') < 0 {
		return k
	}
	return []byte(unquote(b[key[0]:key[1]]))
}

// takeMember handles one member of the body.
func takeMember(r *Request, s *scanner, key, val Span) {
	v, name := val.Of(s.b), plainKey(s.b, key)
	if holdsPrompt(r.Kind, name) {
		takePrompt(r, s, val)
		return
	}
	switch string(name) {
	case "model":
		r.Model, r.ModelSpan = text(v), val
		if r.Model == "" {
			r.ModelSpan = Span{}
		}
	case "system", "instructions":
		r.Prompt.System = presence(v, val)
	case "tools":
		r.Prompt.Tools = presence(v, val)
	case "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "regex", "ebnf":
		r.Constrained = r.Constrained || string(v) != "null"
	case "stream":
		r.Stream = isTrue(v)
	case "stream_options":
		r.IncludeUsage = isTrue(memberOf(s, val, "include_usage"))
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		r.MaxTokens = count(v)
		r.Whole = r.Whole || r.MaxTokens == 1
	case "n", "best_of":
		r.Whole = r.Whole || count(v) > 1
	case "prompt_logprobs":
		r.reads.promptLogprobs = string(v) != "null"
		r.Whole = r.Whole || r.reads.promptLogprobs
	case "logprobs":
		r.reads.logprobs = string(v) != "null"
	case "previous_response_id":
		r.Previous = previous(text(v))
		r.Whole = r.Whole || string(v) != "null"
	case "echo":
		r.reads.echo = isTrue(v)
		r.Whole = r.Whole || r.reads.echo
	case "background":
		r.Background = isTrue(v)
		r.Whole = r.Whole || r.Background
	case "sampling_params":
		takeSampling(r, s, val)
		r.KVTransfer = r.KVTransfer || memberOf(s, val, "extra_args") != nil
	case "vllm_xargs":
		r.Reports = bytes.Contains(v, []byte("kv_cache_report_mode"))
		r.KVTransfer = r.KVTransfer || kvtransfer.Suspect(string(name))
	case "priority":
		r.Urgency = val
	case "cache_salt":
		r.CacheSalt = text(v)
	case "user":
		r.User = text(v)
	case "session_id", "prompt_cache_key":
		takeSession(r, text(v))
	case "session_params":
		takeSession(r, text(memberOf(s, val, "id")))
	case "metadata":
		if user := text(memberOf(s, val, "user_id")); user != "" {
			r.User = user
		}
	default:
		r.KVTransfer = r.KVTransfer || kvtransfer.Suspect(string(name))
	}
}

// maxPrevious bounds the length of a stored response's id.
const maxPrevious = 256

func previous(id string) string {
	if len(id) > maxPrevious {
		return ""
	}
	return id
}

// previousOf returns the stored response id in a path such as /v1/responses/ID or
// /v1/responses/ID/cancel, with any version prefix.
func previousOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	_, rest, _ := strings.Cut(path, "/responses/")
	id, _, _ := strings.Cut(rest, "/")
	return previous(id)
}

// takePrompt records the position and form of the prompt.
func takePrompt(r *Request, s *scanner, val Span) {
	r.Prompt.Main = presence(val.Of(s.b), val)
	r.Prompt.Form = formOf(s, val)
	r.Prompt.Media = s.media
	switch r.Prompt.Form {
	case FormTokens, FormBatches:
		r.InputTokens = s.numbers
	default:
		r.InputTokens = estimate(val[1]-val[0], s.media, s.mediaBytes)
	}
}

// takeSampling reads max_tokens from nested sampling parameters.
func takeSampling(r *Request, s *scanner, val Span) {
	for _, name := range [...]string{"max_tokens", "max_new_tokens"} {
		if v := memberOf(s, val, name); v != nil {
			r.MaxTokens = count(v)
			r.Whole = r.Whole || r.MaxTokens == 1
		}
	}
	logprobs := memberOf(s, val, "prompt_logprobs")
	r.reads.promptLogprobs = logprobs != nil && string(logprobs) != "null"
	r.Whole = r.Whole || count(memberOf(s, val, "n")) > 1 || r.reads.promptLogprobs
	if skip := memberOf(s, val, "skip_reading_prefix_cache"); skip != nil && string(skip) != "null" {
		r.reads.skip, r.reads.skipSet = string(skip) == "true", true
	}
}

// takeSession uses a session key from the body unless a header set one.
func takeSession(r *Request, key string) {
	if r.Session == "" && len(key) <= maxHeaderValueLength {
		r.Session = key
	}
}

// formOf returns the form of the prompt value, from its first element.
func formOf(s *scanner, val Span) Form {
	b := s.b[:val[1]]
	if val[0] >= len(b) {
		return FormNone
	}
	switch b[val[0]] {
	case '"':
		return FormText
	case '[':
	default:
		return FormNone
	}
	i := s.space(val[0] + 1)
	switch {
	case i >= len(b):
		return FormNone
	case b[i] == '"':
		return FormTexts
	case b[i] == '{':
		return FormMessages
	case b[i] == '[':
		return FormBatches
	case b[i] == '-' || b[i]-'0' <= 9:
		return FormTokens
	default:
		return FormNone
	}
}

// Token estimates from bytes, for prompts without a tokenizer.
const (
	bytesPerToken  = 4
	tokensPerMedia = 1024
)

func estimate(size, media, mediaBytes int) int {
	return max(size-mediaBytes, 0)/bytesPerToken + media*tokensPerMedia
}

// takeQuery reads the model from the query for calls whose body cannot name one, such as WebSockets
// (/v1/realtime?model=NAME).
func takeQuery(r *Request) {
	if r.Kind != KindOther || r.Model != "" || r.Query == "" {
		return
	}
	for pair := range strings.SplitSeq(r.Query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(key); err != nil || name != "model" {
			continue
		}
		if model, err := url.QueryUnescape(value); err == nil && len(model) <= maxFormModel {
			r.Model, r.Fixed = model, true // the first one counts, as in servers
			return
		}
	}
}

// finishRequest derives fields that depend on several members.
func finishRequest(r *Request) {
	takeQuery(r)
	if r.Target == "" {
		r.Target = r.Model
	}
	p := r.Prompt
	if !p.Main.Found() {
		return
	}
	for _, part := range [...]Span{p.System, p.Tools} {
		r.InputTokens += (part[1] - part[0]) / bytesPerToken
	}
	r.Chunks.Bytes = chunkBytes(r.Body, p)
}

// chunkBytes returns the prompt's raw bytes for the approximate index. They are equal on every
// replica for the same body, and the next turn of a conversation extends them. They alias the body
// unless there is a separate system prompt.
func chunkBytes(body []byte, p PromptSpans) []byte {
	main := open(p.Main.Of(body))
	if !p.System.Found() {
		return main
	}
	system := p.System.Of(body)
	b := make([]byte, 0, len(system)+len(main))
	return append(append(b, system...), main...)
}

// ChunkRoot returns the parent key of the first chunk of r's prompt: the scope's root, followed by
// the tools, which templates render first.
func (r *Request) ChunkRoot(h block.Hasher, scope block.Scope) block.Key {
	scope.Space = block.SpaceChunks
	root := h.Root(scope)
	if !r.Prompt.Tools.Found() {
		return root
	}
	return h.Child(root, r.Prompt.Tools.Of(r.Body))
}

// open removes the closing bracket or quote, so that a longer value with the same beginning extends
// this one.
func open(b []byte) []byte {
	if n := len(b); n > 0 && (b[n-1] == ']' || b[n-1] == '"') {
		return b[:n-1]
	}
	return b
}

// presence returns the span of a value, or nothing for null and empty values.
func presence(v []byte, val Span) Span {
	switch string(v) {
	case "null", `""`, "[]", "{}":
		return Span{}
	}
	return val
}

// memberOf returns the value of the last member with that name of the object at val, or nil.
func memberOf(s *scanner, val Span, name string) []byte {
	if val[0] >= len(s.b) || s.b[val[0]] != '{' {
		return nil
	}
	var found []byte
	for m := s.members(val[0]); m.next(); {
		if string(plainKey(s.b, m.Key)) == name {
			found = m.Val.Of(s.b)
		}
	}
	return found
}

// text returns the value of a string literal, "" for other values. Invalid UTF-8 becomes U+FFFD,
// because the value may become a metric label.
func text(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	return unquote(v)
}

// unquote resolves escapes and repairs UTF-8. It is the slow path.
func unquote(v []byte) string {
	var out string
	if json.Unmarshal(v, &out) != nil {
		return ""
	}
	return out
}

// isTrue reports whether engines accept the value as true. Their request models also accept numbers
// and words.
func isTrue(v []byte) bool {
	switch string(v) {
	case "true", "1", "1.0":
		return true
	}
	if len(v) < 3 || len(v) > 8 || v[0] != '"' {
		return false
	}
	switch strings.ToLower(text(v)) {
	case "true", "t", "yes", "y", "on", "1":
		return true
	}
	return false
}

// count returns a positive integer, 0 for other values. Engines accept quoted numbers as well.
func count(v []byte) int {
	if len(v) > 2 && len(v) < 32 && v[0] == '"' {
		v = bytes.TrimSpace([]byte(text(v)))
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(n >= 1) {
		return 0
	}
	return int(min(n, math.MaxInt32))
}
