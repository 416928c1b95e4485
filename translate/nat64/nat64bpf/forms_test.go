// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf_test
