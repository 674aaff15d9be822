package kvtransfer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// fields are the body fields that clients may not send.
var fields = []string{
	"kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank", "disaggregated_params", "cache_hit_threshold",
}

// nested are the fields whose own fields engines merge into KV transfers.
var nested = [][]string{{"vllm_xargs"}, {"sampling_params", "extra_args"}}

// nestedFields are the KV-transfer fields of nested objects.
var nestedFields = []string{"kv_transfer_params", "ec_transfer_params"}

// Suspect reports whether a top-level field with that name may be, or contain, a KV-transfer field.
// The body must then go through Policy.Apply.
func Suspect(name string) bool {
	return slices.Contains(fields, name) || slices.ContainsFunc(nested, func(path []string) bool { return path[0] == name })
}

// ErrField means that a body has KV-transfer fields that the policy rejects. The error names them.
var ErrField = errors.New("KV transfer fields are set by proxies only")

// Action is the treatment of a request with KV-transfer fields.
type Action uint8

// Values of Action.
const (
	Refuse Action = iota // the request is answered with 400
	Strip                // the fields are removed
)

// Policy defines the treatment of KV-transfer fields. The zero value rejects all.
type Policy struct {
	Action Action
	Allow  []string // top-level fields that clients may send
}

// Apply returns the body to forward and the names of removed fields, dotted for nested ones. A
// repeated field is always rejected, because parsers disagree on which one counts. If nothing is
// removed, the body is the one that o was parsed from.
func (p Policy) Apply(o *Object) (body []byte, removed []string, err error) {
	var edits []Edit
	for _, name := range fields {
		n := o.Count(name)
		if n == 0 {
			continue
		}
		if n > 1 {
			return nil, nil, fmt.Errorf("%w: %s is there %d times", ErrField, name, n)
		}
		if !slices.Contains(p.Allow, name) {
			removed, edits = append(removed, name), append(edits, Edit{Key: name})
		}
	}
	for _, path := range nested {
		if e, names := without(o, path); names != nil {
			removed, edits = append(removed, names...), append(edits, e)
		}
	}
	switch {
	case removed == nil:
		return o.Text(), nil, nil
	case p.Action == Refuse:
		return nil, nil, fmt.Errorf("%w: %s", ErrField, strings.Join(removed, ", "))
	}
	return o.With(edits...), removed, nil
}

// without returns the edit that removes KV-transfer fields below a path, and their names; nil if
// there are none.
func without(o *Object, path []string) (e Edit, names []string) {
	inner, err := Parse(o.Get(path[0]))
	if err != nil {
		return e, nil
	}
	if len(path) > 1 {
		below, found := without(&inner, path[1:])
		for _, name := range found {
			names = append(names, path[0]+"."+name)
		}
		return Edit{Key: path[0], Value: inner.With(below)}, names
	}
	var edits []Edit
	for _, name := range nestedFields {
		if inner.Count(name) > 0 {
			names, edits = append(names, path[0]+"."+name), append(edits, Edit{Key: name})
		}
	}
	if names == nil {
		return e, nil
	}
	return Edit{Key: path[0], Value: inner.With(edits...)}, names
}
