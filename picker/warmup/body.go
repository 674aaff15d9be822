package warmup

import (
	"encoding/json"

	"github.com/grapevine-epp/grapevine/pd/kvtransfer"
)

// dropped are the body fields removed for a request of one token: they ask for more than the
// prompt's blocks, or contradict the single token. Fields that determine the prompt are kept:
// model, salt, messages, tools, and template arguments.
var dropped = [...]string{
	"stream", "stream_options", "n", "best_of", "use_beam_search", "min_tokens", "echo",
	"logprobs", "top_logprobs", "prompt_logprobs", "priority",
}

// oneToken converts a request's body to one that asks for a single token, for that model unless it
// is "". KV-transfer fields are removed too.
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
		if err != nil { // not a string
			return nil, err
		}
		edits = append(edits, kvtransfer.Edit{Key: "model", Value: name})
	}
	if priority != nil {
		edits[len(dropped)-1].Value = priority
	}
	return doc.With(edits...), nil
}
