// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpf

import (
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

// Limits and flags in C and Go are one.
func TestConstants(t *testing.T) {
	fastpathtest.Defines(t, "bpf/translate_settings.h", []string{
		fmt.Sprintf("MAX_POOL6 %d\n", MaxPool6), fmt.Sprintf("POOL6_STRICT %d ", Strict), fmt.Sprintf("POOL6_LEAVING %d ", Leaving),
	})
}
