package commands

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-epp/grapevine/internal/admin"
	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/internal/flightrecorder"
)

const flightPath = "/debug/flight"

func newFlightRecord() *cobra.Command {
	var address, output, get, pool string
	var list bool
	cmd := &cobra.Command{
		Use:   "flight-record",
		Short: "Save what a replica did in the last seconds, for a report",
		Long: `Makes a flight record at a running replica and saves it as one .tar.gz archive: goroutine
stacks, execution trace, recent decisions, status, group, metrics, configuration without
secrets, and versions. It has no prompts, header values, keys or tokens, so it can be shared.

A replica also makes a record when it stops being ready and after a slow decision.
--list shows the stored records, and --get fetches one of them.

Like the other commands that act, it needs an address on the replica's own machine, or its
control listener.`,
		Example: `  grapevine flight-record -o record.tar.gz
  grapevine flight-record --list
  grapevine flight-record --admin https://10.0.1.7:9091 --get NAME`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list && (get != "" || output != "") {
				return cli.UsageError{Err: errors.New("--list takes neither --get nor --output")}
			}
			method, path := http.MethodPost, flightPath
			if list || get != "" {
				method = http.MethodGet
			}
			if get != "" {
				path += "/" + url.PathEscape(get)
			}
			resp, err := admin.Client(address).Do(cmd.Context(), method, admin.PoolPath(pool)+path, nil, nil)
			if err != nil {
				return cli.UsageIf(err, admin.ErrAddress)
			}
			defer resp.Body.Close()
			if list {
				return writeRecords(cmd.OutOrStdout(), resp.Body)
			}
			return saveRecord(cmd.OutOrStdout(), resp, output)
		},
	}
	cmd.Flags().StringVar(&address, "admin", "127.0.0.1:9090", "admin address of a replica")
	addPool(cmd, &pool)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file for the record (default: the record's name, in the working directory)")
	cmd.Flags().BoolVar(&list, "list", false, "list the stored records instead of making one")
	cmd.Flags().StringVar(&get, "get", "", "name of a stored record to save instead of making one")
	return cmd
}

// writeRecords prints the list of records in a response.
func writeRecords(w io.Writer, body io.Reader) error {
	var list []flightrecorder.Record
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "RECORD\tTIME\tTRIGGER\tBYTES\tDETAIL")
	for _, r := range list {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\n", r.Name, r.At.UTC().Format(time.DateTime), cmp.Or(r.Trigger, "-"), r.Bytes, cmp.Or(r.Detail, "-"))
	}
	return tab.Flush()
}

// saveRecord writes the record in a response to a file that only this user may read.
func saveRecord(w io.Writer, resp *http.Response, path string) error {
	if path == "" {
		_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
		if path = filepath.Base(params["filename"]); err != nil || !flightrecorder.IsName(path) {
			return errors.New("the answer names no record: set --output")
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, resp.Body)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %d bytes\n", path, n)
	return nil
}
