// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"os"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestFileOfAnotherUser(t *testing.T) {
	testutil.NeedRoot(t)
	path := teredotest.File(t, teredotest.Secret, 0o600)
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSecret(path); err == nil || !strings.Contains(err.Error(), "belong") {
		t.Errorf("error %v", err)
	}
}

func TestReadSecret(t *testing.T) {
	for _, tt := range []struct{ name, text, err string }{
		{"without line end", teredotest.Secret, ""},
		{"with line end", teredotest.Secret + "\n", ""},
		{"with the line end of others", teredotest.Secret + "\r\n", ""},
		{"too short", "short\n", "can be guessed"},
		{"too long", strings.Repeat("x", maxSecret+1), "is larger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadSecret(teredotest.File(t, tt.text, 0o600))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && got != teredotest.Secret {
				t.Errorf("secret %q", string(got))
			}
		})
	}
}
