// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
)

// TestPasswordNotLogged: an order to attach stands in the log without its password.
func TestPasswordNotLogged(t *testing.T) {
	text := role.List{Role}.ForLog(&SGSN{}, "attach", json.RawMessage(`{"imsi":"1","password":"hemlig"}`))
	if !strings.Contains(text, `"imsi":"1"`) || strings.Contains(text, "hemlig") {
		t.Errorf("the log has %s", text)
	}
}

// TestPasswordFile is the password of the context of the start, and of no one who may not read it.
func TestPasswordFile(t *testing.T) {
	configtest.InEffect(t, "sgsn", "password_file")
	file := filepath.Join(t.TempDir(), "password")
	s := *configtest.One(t, Role.Section, fmt.Sprintf("[[sgsn]]\nlocal = \"192.0.2.1\"\nimsi = \"1\"\napn = \"a\"\nggsn = \"192.0.2.9\"\nuser = \"mig\"\npassword_file = %q\n", file)).(*Settings)
	for _, row := range []struct {
		text string
		mode os.FileMode
		want string
	}{{"hemmelig\n", 0o600, "hemmelig"}, {"hemmelig\n", 0o644, ""}, {strings.Repeat("x", 65), 0o600, ""}} {
		if err := errors.Join(os.WriteFile(file, []byte(row.text), row.mode), os.Chmod(file, row.mode)); err != nil {
			t.Fatal(err)
		}
		w, ok, err := s.first()
		if w.Password != row.want || ok != (row.want != "") || (err == nil) != ok {
			t.Errorf("%q, mode %o: %q, %v", row.text, row.mode, w.Password, err)
		}
		if err != nil && strings.Contains(err.Error(), strings.TrimSpace(row.text)) {
			t.Errorf("the error tells it: %v", err)
		}
	}
}
