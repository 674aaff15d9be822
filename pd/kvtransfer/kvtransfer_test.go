package kvtransfer

import (
	"errors"
	"testing"
)

func TestApply(t *testing.T) {
	strip, refuse := Policy{Action: Strip}, Policy{}
	for _, c := range []struct {
		name, body string
		policy     Policy
		want       string // "" = refused
	}{
		{"nothing", `{"model":"m","seed":9007199254740993}`, refuse, `{"model":"m","seed":9007199254740993}`},
		{"refused", `{"kv_transfer_params":{"do_remote_prefill":true}}`, refuse, ""},
		{"even null", `{"kv_transfer_params":null}`, refuse, ""},
		{"stripped", `{"a": 1, "kv_transfer_params":{"x":[1]}, "bootstrap_room":3,"b":2}`, strip, `{"a": 1,"b":2}`},
		{"escaped name", `{"kv_tr\u0061nsfer_params":{}}`, strip, `{}`},
		{"nested", `{"vllm_xargs":{"keep":1,"kv_transfer_params":"x"},"sampling_params":{"n":1,"extra_args":{"ec_transfer_params":{}}}}`, strip,
			`{"vllm_xargs":{"keep":1},"sampling_params":{"n":1,"extra_args":{}}}`},
		{"nested refused", `{"sampling_params":{"extra_args":{"kv_transfer_params":1}}}`, refuse, ""},
		{"allowed", `{"cache_hit_threshold":0.5}`, Policy{Allow: []string{"cache_hit_threshold"}}, `{"cache_hit_threshold":0.5}`},
		{"twice", `{"kv_transfer_params":1,"kv_transfer_params":2}`, strip, ""},
		{"allowed twice", `{"cache_hit_threshold":0,"cache_hit_threshold":1}`, Policy{Allow: []string{"cache_hit_threshold"}}, ""},
	} {
		o, err := Parse([]byte(c.body))
		if err != nil {
			t.Fatal(c.name, err)
		}
		got, removed, err := c.policy.Apply(&o)
		if string(got) != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrField) {
			t.Errorf("%s: %s, removed %v, %v", c.name, got, removed, err)
		}
	}
}
