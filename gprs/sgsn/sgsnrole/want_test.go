// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/role"
)

// TestPasswordNotLogged: an order to attach stands in the log without its password.
func TestPasswordNotLogged(t *testing.T) {
	text := role.List{Role}.ForLog(&SGSN{}, "attach", json.RawMessage(`{"imsi":"1","password":"hemlig"}`))
	if !strings.Contains(text, `"imsi":"1"`) || strings.Contains(text, "hemlig") {
		t.Errorf("the log has %s", text)
	}
}
