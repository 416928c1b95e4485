// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestSecretIsHidden(t *testing.T) {
	const someSecret = "correct horse battery staple"
	k := struct{ Secret }{someSecret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, k); strings.Contains(text, someSecret) {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
