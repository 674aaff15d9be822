package plugins

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
)

// calibration is a measured peak of prefill throughput, as the calibration recipe of llm-d writes
// it.
type calibration struct {
	SchemaVersion int     `json:"schema_version"`
	Status        string  `json:"status"`
	Fingerprint   string  `json:"fingerprint"`
	ChunkTokens   int     `json:"chunk_tokens"`
	ValidSamples  int     `json:"valid_samples"`
	MedianTTFT    float64 `json:"median_ttft_seconds"`
	Peak          float64 `json:"peak_prefill_tokens_per_second"`
}

const (
	calibrationSchema  = 1
	calibrationStatus  = "OK"
	calibrationSamples = 10       // least number of valid samples
	maxCalibration     = 64 << 10 // bytes of a record
)

// calibrated returns the measured throughput that applies, 0 if none does, and why a configured
// record does not apply. written means that the file has its own throughput, which wins.
func (p *affinityParams) calibrated(written bool) (problem string, measured float64) {
	switch {
	case written || p.TTFTSource == byPredictor:
		return "", 0
	case p.PrefillCalibrationFile == "" && p.PrefillCalibrationRequired:
		return "prefillCalibrationFile is empty", 0
	case p.PrefillCalibrationFile == "":
		return "", 0
	}
	record, err := readCalibration(p.PrefillCalibrationFile)
	if err != nil {
		return err.Error(), 0
	}
	if problem := record.unusable(p.PrefillCalibrationFingerprint); problem != "" {
		return problem, 0
	}
	return "", record.Peak
}

func readCalibration(path string) (record calibration, err error) {
	f, err := os.Open(path)
	if err != nil {
		return record, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxCalibration)).Decode(&record); err != nil {
		return record, fmt.Errorf("the record is not valid: %w", err)
	}
	return record, nil
}

// unusable returns why the record does not apply to the deployment with the fingerprint, or "".
func (c *calibration) unusable(fingerprint string) string {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch {
	case c.SchemaVersion != calibrationSchema:
		return fmt.Sprintf("schema_version is %d, not %d", c.SchemaVersion, calibrationSchema)
	case c.Status != calibrationStatus:
		return fmt.Sprintf("status is %q, not %q", c.Status, calibrationStatus)
	case !positive(c.Peak):
		return "peak_prefill_tokens_per_second is missing or not positive"
	case c.ChunkTokens <= 0:
		return "chunk_tokens is missing or not positive"
	case c.ValidSamples < calibrationSamples:
		return fmt.Sprintf("valid_samples is %d, at least %d are required", c.ValidSamples, calibrationSamples)
	case !positive(c.MedianTTFT):
		return "median_ttft_seconds is missing or not positive"
	case c.Fingerprint == "":
		return "the record has no fingerprint"
	case fingerprint == "":
		return "prefillCalibrationFingerprint is empty"
	case c.Fingerprint != fingerprint:
		return fmt.Sprintf("the record is of another deployment: fingerprint %q, not %q", c.Fingerprint, fingerprint)
	}
	return ""
}
