package commands

import (
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/migrate"
)

// foreignFlags are all flags of the pickers of llm-d and of the Gateway API inference extension,
// each with a value other than its default.
const foreignFlags = `
--grpc-port=9102 --grpc-health-port=9103 --metrics-port=9190 --health-checking=true
--pool-name=llama --pool-namespace=prod --pool-group=inference.networking.x-k8s.io
--endpoint-selector=app=vllm --endpoint-target-ports=8000,8001
--config-file=/config/epp.yaml --config-text=plugins:
--secure-serving=false --cert-path=/certs --enable-cert-reload=false
--tls-min-version=VersionTLS13 --tls-cipher-suites=TLS_AES_128_GCM_SHA256
--metrics-endpoint-auth=true --metrics-cert-dir=/metrics --metrics-client-ca-file=/metrics/ca.crt
--ha-enable-leader-election=true --drain-timeout=40s --tracing=true --enable-pprof=false
--emit-endpoint-scores=true --disable-endpoint-subset-filter=true --enable-grpc-stream-metrics=true
--allow-experimental-plugins=true --grpc-max-recv-msg-size=10MiB --grpc-max-send-msg-size=25MB
--refresh-metrics-interval=100ms --refresh-prometheus-metrics-interval=9s --metrics-staleness-threshold=3s
--total-queued-requests-metric=q --total-running-requests-metric=r --kv-cache-usage-percentage-metric=u
--lora-info-metric=l --cache-info-metric=c
--model-server-metrics-scheme=https --model-server-metrics-path=/m --model-server-metrics-port=8009
--model-server-metrics-https-insecure-skip-verify=false
--v=4 --zap-encoder=json --zap-log-level=debug --zap-devel=true --zap-stacktrace-level=error --zap-time-encoding=iso8601`

// Every flag of other pickers becomes a flag of serve or has a note about the difference, in each
// syntax of the flag.
func TestForeignFlags(t *testing.T) {
	nothing := map[string]bool{ // always has the requested effect
		"health-checking": true, "enable-grpc-stream-metrics": true, "allow-experimental-plugins": true,
	}
	seen := 0
	for _, arg := range strings.Fields(foreignFlags) {
		seen++
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		forms := [][]string{{arg}, {arg[1:]}}
		if value != "true" && value != "false" {
			forms = append(forms, []string{"--" + name, value})
		}
		for _, args := range forms {
			got, err := migrate.Translate(newServe(standard).Flags(), kubeNames, args)
			if err != nil {
				t.Errorf("%q: %v", args, err)
				continue
			}
			var set []string
			for _, a := range got.Args {
				if !strings.HasPrefix(a, "--metrics-compat=") {
					set = append(set, a)
				}
			}
			if _, err := migrate.Translate(newServe(standard).Flags(), kubeNames, set); err != nil {
				t.Errorf("%q becomes %q, which serve refuses: %v", args, set, err)
			}
			if len(set)+len(got.Notes) == 0 && !nothing[name] {
				t.Errorf("%q is accepted without a note", args)
			}
		}
	}
	if seen != 47 {
		t.Errorf("%d flags", seen)
	}
}
