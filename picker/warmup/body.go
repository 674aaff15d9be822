package warmup

import (
	"encoding/json"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// dropped are the members that a request of one token is without: they ask for more than
// the prompt's blocks, or contradict the one token. What decides the prompt stays as the
// client wrote it: model, salt, messages, tools, and what templates are given.
var dropped = [...]string{
	"stream", "stream_options", "n", "best_of", "use_beam_search", "min_tokens", "echo",
	"logprobs", "top_logprobs", "prompt_logprobs", "priority",
}

// oneToken returns a request's body as one that asks for a single token at once, for the
// model of that name unless it is "". Members by which proxies hand caches over are left
// out too.
func oneToken(body []byte, model string, priority []byte) ([]byte, error) {
	doc, err := kvtransfer.Parse(body)
	if err != nil {
		return nil, err
	}
	if body, _, err = (kvtransfer.Policy{Action: kvtransfer.Strip}).Apply(&doc); err != nil {
		return nil, err
	}
	if doc, err = kvtransfer.Parse(body); err != nil {
		return nil, err
	}
	edits := make([]kvtransfer.Edit, 0, len(dropped)+3)
	for _, name := range dropped {
		edits = append(edits, kvtransfer.Edit{Key: name})
	}
	limit, other := "max_tokens", "max_completion_tokens"
	if doc.Get(other) != nil {
		limit, other = other, limit
	}
	edits = append(edits, kvtransfer.Edit{Key: limit, Value: []byte("1")}, kvtransfer.Edit{Key: other})
	if model != "" {
		name, err := json.Marshal(model)
		if err != nil { // no string
			return nil, err
		}
		edits = append(edits, kvtransfer.Edit{Key: "model", Value: name})
	}
	if priority != nil {
		edits[len(dropped)-1].Value = priority
	}
	return doc.With(edits...), nil
}
