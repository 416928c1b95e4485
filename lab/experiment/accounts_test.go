// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCharged adds up the charging records of sessions that have ended, however many one has.
func TestCharged(t *testing.T) {
	record := func(session, up, volume, end string) string {
		return `{"session":"` + session + `","up_octets":` + up + `,"down_octets":1,"traffic_volumes":[{"up_octets":` + volume + `,"down_octets":1}],"diagnostics":"` + end + `"}` + "\n"
	}
	for _, row := range []struct {
		name  string
		lines string
		want  accounts
		err   string
	}{
		{"one each", record("a", "5", "5", "peer") + record("b", "7", "7", "idle"), accounts{"a": {5, 1}, "b": {7, 1}}, ""},
		{"several, mixed", record("a", "5", "5", "") + record("b", "7", "7", "idle") + record("a", "9", "9", "") + record("a", "0", "0", "peer"), accounts{"a": {14, 3}, "b": {7, 1}}, ""},
		{"of one that a kill has ended", record("a", "5", "5", "") + record("b", "7", "7", "idle"), accounts{"b": {7, 1}}, ""},
		{"the last one twice", record("a", "5", "5", "peer") + record("a", "5", "5", "peer"), accounts{"a": {10, 2}}, ""},
		{"volumes that have less", record("a", "5", "4", "peer"), nil, "its volumes"},
		{"half a line", `{"session":"a`, nil, "EOF"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "charging.jsonl")
			if err := os.WriteFile(path, []byte(row.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := charged(path)
			if !maps.Equal(got, row.want) || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("%v, %v, want %v", got, err, row.want)
			}
		})
	}
}
