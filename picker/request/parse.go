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

// kinds maps the ends of request paths to kinds; the first that fits counts.
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

// KindOf returns the kind of a request path, which may carry a query. A prefix
// before the known path is accepted, as gateways route by one. It may stand for the
// version, which the gateway puts in on the way to the engine: such a path is likely
// of the kind, and not surely, because other calls end in the same word.
//
// Engines resolve percent signs before they look whose path it is, so a letter that is
// written by its code does not make another call of it.
func KindOf(path string) (kind Kind, sure bool) {
	path, _, _ = strings.Cut(path, "?")
	if strings.IndexByte(path, '%') >= 0 {
		if plain, err := url.PathUnescape(path); err == nil {
			path = plain
		}
	}
	if path == "/generate" { // a suffix elsewhere: other engines use the word too
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

// gzipped is how a body in gzip begins.
var gzipped = []byte{0x1f, 0x8b}

// Parse fills r from its Path, Headers and Body in one scan. It builds
// nothing of the prompt: r.Prompt says where it stands. The error is a *Error
// with ReasonBadRequest when the body of an inference request is not JSON.
// Unknown paths pass; what their body tells is taken when it
// happens to be JSON, or a form. Of duplicate keys the last one counts, as engines do.
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

// ParsePrefix fills r from the first bytes of a body whose rest was not sent.
// A prompt that is cut counts as far as it is there. A model that comes later
// stays unknown.
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

// scanBody reads the body's members. When the body is broken it returns where,
// and false; what was read until then stays.
func scanBody(r *Request) (at int, ok bool) {
	s := scanners.Get().(*scanner)
	defer scanners.Put(s)
	r.Previous = previousOf(r.Path)
	s.b, s.rested = r.Body, 0
	defer func() { s.b = nil }()
	i := s.space(bom(s.b))
	r.Members, r.Handover, r.Whole, r.Reports, r.reads, r.Urgency = 0, false, false, false, reads{}, Span{}
	if i >= len(s.b) || s.b[i] != '{' {
		r.Handover = wide(s.b)
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
	r.Handover = r.Handover || s.deep || wide(s.b)
	return s.bad, false
}

// wide reports whether a body is JSON in two or four bytes a character, which engines
// written in Python read as they read UTF-8. Nobody sends it who has nothing to hide.
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
	return len(b) > 0 // white space only, as far as it is looked at
}

// bom returns the length of the byte order mark that a body begins with.
// Engines accept one.
func bom(b []byte) int {
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return 3
	}
	return 0
}

// takeCut takes a member whose value does not end within the body: only the
// parts of the prompt are of use then.
func takeCut(r *Request, s *scanner, key, val Span) {
	name := plainKey(s.b, key)
	if holdsPrompt(r.Kind, name) || string(name) == "system" || string(name) == "instructions" {
		takeMember(r, s, key, val)
	}
}

// holdsPrompt reports whether the member of that name is the prompt in
// requests of the kind.
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

// plainKey returns the key without quotes, with its escapes resolved.
func plainKey(b []byte, key Span) []byte {
	k := b[key[0]+1 : key[1]-1]
	if bytes.IndexByte(k, '\\') < 0 {
		return k
	}
	return []byte(unquote(b[key[0]:key[1]]))
}

// takeMember takes what one member of the body says.
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
		r.Handover = r.Handover || memberOf(s, val, "extra_args") != nil
	case "vllm_xargs":
		r.Reports = bytes.Contains(v, []byte("kv_cache_report_mode"))
		r.Handover = r.Handover || kvtransfer.Suspect(string(name))
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
		r.Handover = r.Handover || kvtransfer.Suspect(string(name))
	}
}

// maxPrevious bounds the id of a stored response.
const maxPrevious = 256

func previous(id string) string {
	if len(id) > maxPrevious {
		return ""
	}
	return id
}

// previousOf returns the id of the stored response that a path names, as in
// /v1/responses/ID and /v1/responses/ID/cancel, whatever stands for the version.
func previousOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	_, rest, _ := strings.Cut(path, "/responses/")
	id, _, _ := strings.Cut(rest, "/")
	return previous(id)
}

// takePrompt notes where the prompt is and how it is written.
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

// takeSampling reads max_tokens where it stands among the sampling parameters.
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
		r.reads.skip, r.reads.told = string(skip) == "true", true
	}
}

// takeSession takes a session key from the body unless a header gave one.
func takeSession(r *Request, key string) {
	if r.Session == "" && len(key) <= maxHeaderValueLength {
		r.Session = key
	}
}

// formOf tells how the prompt value is written from its first element.
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

// Estimates of tokens from bytes, for prompts that nobody has tokenized yet.
const (
	bytesPerToken  = 4
	tokensPerMedia = 1024
)

func estimate(size, media, mediaBytes int) int {
	return max(size-mediaBytes, 0)/bytesPerToken + media*tokensPerMedia
}

// takeQuery takes the model from the query where the body names none and cannot: calls of
// other kinds, such as WebSockets (/v1/realtime?model=NAME).
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
			r.Model, r.Fixed = model, true // as servers do, the first one counts
			return
		}
	}
}

// finishRequest derives what several members decide together.
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

// chunkBytes returns the prompt's raw bytes for the approximate index. They are
// equal on every replica that gets the same body, and a conversation's next
// turn extends them. They alias the body unless a system prompt stands apart.
func chunkBytes(body []byte, p PromptSpans) []byte {
	main := open(p.Main.Of(body))
	if !p.System.Found() {
		return main
	}
	system := p.System.Of(body)
	b := make([]byte, 0, len(system)+len(main))
	return append(append(b, system...), main...)
}

// ChunkRoot returns the key above the first chunk of r's prompt: the root of
// the scope, and below it the tools, which templates render before everything
// else.
func (r *Request) ChunkRoot(h block.Hasher, scope block.Scope) block.Key {
	scope.Space = block.SpaceChunks
	root := h.Root(scope)
	if !r.Prompt.Tools.Found() {
		return root
	}
	return h.Child(root, r.Prompt.Tools.Of(r.Body))
}

// open drops the bracket or quote that ends a value, so that a longer value of
// the same beginning extends it.
func open(b []byte) []byte {
	if n := len(b); n > 0 && (b[n-1] == ']' || b[n-1] == '"') {
		return b[:n-1]
	}
	return b
}

// presence returns the span of a value, nothing for null and empty ones.
func presence(v []byte, val Span) Span {
	switch string(v) {
	case "null", `""`, "[]", "{}":
		return Span{}
	}
	return val
}

// memberOf returns the value of the last member of the object at val with the
// name, nil when there is none.
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

// text returns the value of a string literal, "" for anything else. Bytes that
// are not UTF-8 become U+FFFD: the value may end in a metric's label.
func text(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	return unquote(v)
}

// unquote resolves escapes and mends UTF-8; it is for the rare literal that has some.
func unquote(v []byte) string {
	var out string
	if json.Unmarshal(v, &out) != nil {
		return ""
	}
	return out
}

// isTrue reports whether engines take the value for true: their models of requests also
// take numbers and words.
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

// count returns a positive whole number, 0 for anything else. Engines take a number in
// quotes as well.
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
