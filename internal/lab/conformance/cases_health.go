package conformance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func healthCases() []Case {
	const (
		section  = protocol + ", Health Checking"
		extProcs = "envoy.service.ext_proc.v3.ExternalProcessor"
	)
	return []Case{
		{"health-liveness", Must, section, "Liveness Check (liveness): Determines if the EPP process is alive and responsive. Returns SERVING if the EPP process can respond to gRPC requests.",
			"Check of liveness; SERVING", serving("liveness")},
		{"health-readiness", Must, section, "Readiness Check (readiness): Determines if the EPP is ready to accept and process inference requests.",
			"Check of readiness; SERVING", serving("readiness")},
		{"health-ext-proc", Must, section, "External Processor Service Check (envoy.service.ext_proc.v3.ExternalProcessor): Verifies the main ext_proc service is healthy. Returns SERVING if the EPP is ready to process ext_proc requests.",
			"Check of the ext_proc service; SERVING", serving(extProcs)},
		{"health-server", Should, grpcHealth, "The server should use an empty string as the key for server's overall health status.", "Check of the empty name; SERVING", serving("")},
		{"health-unknown", Should, grpcHealth, "If the service name is not registered, the server returns a NOT_FOUND GRPC status.", "Check of an unknown name; NOT_FOUND", healthUnknown},
		{"health-watch", May, grpcHealth, "A client can call the Watch method to perform a streaming health-check.", "Watch of the ext_proc service; SERVING", healthWatch(extProcs)},
		{"health-inference-extension", May, practice + ": charts of the Gateway API Inference Extension", "The probes of the charts check the service inference-extension.",
			"Check of inference-extension; SERVING", serving("inference-extension")},
	}
}

// onHealth calls f with the health listener, and then with the ext_proc listener if that fails.
func (s *session) onHealth(f func(grpc_health_v1.HealthClient) (string, error)) (string, error) {
	var first error
	for _, client := range s.health {
		seen, err := f(client)
		if err == nil {
			return seen, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

func healthError(err error) error {
	if st := status.Convert(err); !isUnreachable(st) {
		return errors.New(st.Code().String())
	}
	return unreachable{err}
}

func serving(name string) run {
	return func(ctx context.Context, s *session) (string, error) {
		return s.onHealth(func(client grpc_health_v1.HealthClient) (string, error) {
			r, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
			if err != nil {
				return "", healthError(err)
			}
			if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
				return "", errors.New(r.GetStatus().String())
			}
			return "SERVING", nil
		})
	}
}

func healthUnknown(ctx context.Context, s *session) (string, error) {
	r, err := s.health[0].Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "a-service-without-a-name"})
	if status.Code(err) == codes.NotFound {
		return "NOT_FOUND", nil
	}
	if err != nil {
		return "", healthError(err)
	}
	return "", errors.New(r.GetStatus().String())
}

func healthWatch(name string) run {
	return func(ctx context.Context, s *session) (string, error) {
		return s.onHealth(func(client grpc_health_v1.HealthClient) (string, error) {
			watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
			if err != nil {
				return "", healthError(err)
			}
			r, err := watch.Recv()
			if err != nil {
				return "", healthError(err)
			}
			if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
				return "", fmt.Errorf("the first status is %v", r.GetStatus())
			}
			return "SERVING", nil
		})
	}
}
