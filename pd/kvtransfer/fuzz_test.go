package kvtransfer

import (
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/sweep"
)

// FuzzApply applies a policy to arbitrary bodies. A stripped body has nothing left to remove, and a
// body without suspect fields is unchanged.
func FuzzApply(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","kv_transfer_params":{"do_remote_prefill":true}}`, `{"kv_transfer_params":1,"kv_transfer_params":2}`, `{"bootstrap_host":"x","a":[1,{"b":2}]}`,
		`{"sampling_params":{"extra_args":{"kv_transfer_params":{}}}}`, `{"\u006bv_transfer_params":1}`, `{"a":1}`, `[]`, `{`,
	} {
		f.Add([]byte(s))
	}
	sweep.Fuzz(f, sweep.Default, func(t *testing.T, body []byte) {
		o, err := Parse(body)
		if err != nil {
			return
		}
		out, removed, err := Policy{Action: Strip}.Apply(&o)
		if err != nil {
			return
		}
		if len(removed) == 0 {
			if string(out) != string(body) {
				t.Fatalf("%q became %q, but nothing was removed", body, out)
			}
			return
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		if _, removed, err := (Policy{}).Apply(&again); err != nil || len(removed) > 0 {
			t.Fatalf("%q became %q, in which %v is rejected: %v", body, out, removed, err)
		}
	})
}
