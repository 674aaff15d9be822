package commands

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// The command lines of published presets become these flags of serve.
func TestPresets(t *testing.T) {
	for _, x := range []struct {
		name, source string
		args, want   []string
	}{
		{
			"KServe with TLS", "LLMInferenceServiceConfig kserve-config-llm-scheduler, KServe v0.20.0",
			[]string{
				"--pool-name", "qwen-inference-pool", "--pool-namespace", "prod", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003",
				"--enable-cert-reload=true", "--secure-serving=true", "--model-server-metrics-scheme=https", "--cert-path=/var/run/kserve/tls",
				"--ha-enable-leader-election", "--config-text", `{"kind":"EndpointPickerConfig"}`,
			},
			[]string{
				`--config-text={"kind":"EndpointPickerConfig"}`, "--pool-name=qwen-inference-pool", "--pool-namespace=prod", "--listen=0.0.0.0:9002", "--health=0.0.0.0:9003",
				"--tls-cert=/var/run/kserve/tls/tls.crt", "--tls-key=/var/run/kserve/tls/tls.key", "--engine-scheme=https", "--log-format=json", "--metrics-compat=true",
			},
		},
		{
			"KServe without TLS", "the same; options that are off leave empty arguments",
			[]string{"--pool-name", "qwen-inference-pool", "--pool-namespace", "prod", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003", "", "", "", "", "--config-text", "x"},
			[]string{"--config-text=x", "--pool-name=qwen-inference-pool", "--pool-namespace=prod", "--listen=0.0.0.0:9002", "--health=0.0.0.0:9003", "--log-format=json", "--metrics-compat=true"},
		},
		{
			"empty values", "chart inferencepool v1.5.0 of the Gateway API inference extension, for engines without the gauge",
			[]string{"--pool-name", "p", "--lora-info-metric", "", "--zap-encoder", "json", "", "--grpc-port", "9002"},
			[]string{"--pool-name=p", "--listen=0.0.0.0:9002", "--log-format=json", "--metrics-compat=true"},
		},
		{
			"older KServe with TLS", "the same preset with llm-d-inference-scheduler v0.2.0",
			[]string{"--poolName", "p", "--grpcPort", "9002", "--secureServing", "--modelServerMetricsScheme", "https", "--modelServerMetricsHttpsInsecureSkipVerify", "--certPath", "/etc/ssl/certs", "--kvCacheUsagePercentageMetric", "vllm:kv_cache_usage_perc"},
			[]string{"--pool-name=p", "--listen=0.0.0.0:9002", "--tls-cert=/etc/ssl/certs/tls.crt", "--tls-key=/etc/ssl/certs/tls.key", "--engine-scheme=https", "--metrics-compat=true"},
		},
		{
			"certificates are verified", "metrics of engines with a page of their own",
			[]string{"--pool-name=p", "--model-server-metrics-https-insecure-skip-verify=false", "--model-server-metrics-path=/stats", "--model-server-metrics-port=9400"},
			[]string{"--pool-name=p", "--engine-metrics-path=/stats", "--engine-metrics-port=9400", "--engine-verify=true", "--metrics-compat=true"},
		},
	} {
		got, err := migrate.Translate(newServe(standard).Flags(), kubeNames, x.args)
		if err != nil {
			t.Errorf("%s (%s): %v", x.name, x.source, err)
			continue
		}
		if diff := cmp.Diff(x.want, got.Args); diff != "" {
			t.Errorf("%s (%s): flags of serve (-want +got)\n%s", x.name, x.source, diff)
		}
	}
}

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
