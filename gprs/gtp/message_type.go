// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// MessageType is the second octet of every GTP header (TS 29.060 section 7.1, TS 29.281
// section 6.1, TS 09.60 section 7.1).
type MessageType uint8

// The message types of all versions and planes. Those up to [InfoChangeResponse] that
// a GGSN and an SGSN exchange have types of their own in this package; the elements of
// all others are read by [ParseElements].
const (
	TypeEchoRequest                    MessageType = 1
	TypeEchoResponse                   MessageType = 2
	TypeVersionNotSupported            MessageType = 3
	TypeNodeAliveRequest               MessageType = 4
	TypeNodeAliveResponse              MessageType = 5
	TypeRedirectionRequest             MessageType = 6
	TypeRedirectionResponse            MessageType = 7
	TypeCreateRequest                  MessageType = 16
	TypeCreateResponse                 MessageType = 17
	TypeUpdateRequest                  MessageType = 18
	TypeUpdateResponse                 MessageType = 19
	TypeDeleteRequest                  MessageType = 20
	TypeDeleteResponse                 MessageType = 21
	TypeInitiateRequest                MessageType = 22
	TypeInitiateResponse               MessageType = 23
	TypeDeleteAARequest                MessageType = 24
	TypeDeleteAAResponse               MessageType = 25
	TypeErrorIndication                MessageType = 26
	TypePDUNotificationRequest         MessageType = 27
	TypePDUNotificationResponse        MessageType = 28
	TypePDUNotificationRejectRequest   MessageType = 29
	TypePDUNotificationRejectResponse  MessageType = 30
	TypeSupportedExtensions            MessageType = 31
	TypeSendRoutingRequest             MessageType = 32
	TypeSendRoutingResponse            MessageType = 33
	TypeFailureReportRequest           MessageType = 34
	TypeFailureReportResponse          MessageType = 35
	TypeMSPresentRequest               MessageType = 36
	TypeMSPresentResponse              MessageType = 37
	TypeIdentificationRequest          MessageType = 48
	TypeIdentificationResponse         MessageType = 49
	TypeSGSNContextRequest             MessageType = 50
	TypeSGSNContextResponse            MessageType = 51
	TypeSGSNContextAcknowledge         MessageType = 52
	TypeRelocationRequest              MessageType = 53
	TypeRelocationResponse             MessageType = 54
	TypeRelocationComplete             MessageType = 55
	TypeRelocationCancelRequest        MessageType = 56
	TypeRelocationCancelResponse       MessageType = 57
	TypeSRNSContext                    MessageType = 58
	TypeRelocationCompleteAcknowledge  MessageType = 59
	TypeSRNSContextAcknowledge         MessageType = 60
	TypeUERegistrationRequest          MessageType = 61
	TypeUERegistrationResponse         MessageType = 62
	TypeRANInformationRelay            MessageType = 70
	TypeMBMSNotificationRequest        MessageType = 96
	TypeMBMSNotificationResponse       MessageType = 97
	TypeMBMSNotificationRejectRequest  MessageType = 98
	TypeMBMSNotificationRejectResponse MessageType = 99
	TypeMBMSCreateRequest              MessageType = 100
	TypeMBMSCreateResponse             MessageType = 101
	TypeMBMSUpdateRequest              MessageType = 102
	TypeMBMSUpdateResponse             MessageType = 103
	TypeMBMSDeleteRequest              MessageType = 104
	TypeMBMSDeleteResponse             MessageType = 105
	TypeMBMSRegistrationRequest        MessageType = 112
	TypeMBMSRegistrationResponse       MessageType = 113
	TypeMBMSDeregistrationRequest      MessageType = 114
	TypeMBMSDeregistrationResponse     MessageType = 115
	TypeMBMSSessionStartRequest        MessageType = 116
	TypeMBMSSessionStartResponse       MessageType = 117
	TypeMBMSSessionStopRequest         MessageType = 118
	TypeMBMSSessionStopResponse        MessageType = 119
	TypeMBMSSessionUpdateRequest       MessageType = 120
	TypeMBMSSessionUpdateResponse      MessageType = 121
	TypeInfoChangeRequest              MessageType = 128
	TypeInfoChangeResponse             MessageType = 129
	TypeDataRecordRequest              MessageType = 240
	TypeDataRecordResponse             MessageType = 241
	TypeTunnelStatus                   MessageType = 253
	TypeEndMarker                      MessageType = 254
	TypeGPDU                           MessageType = 255
)

var messageNames = [256]string{
	TypeEchoRequest:                    "Echo Request",
	TypeEchoResponse:                   "Echo Response",
	TypeVersionNotSupported:            "Version Not Supported",
	TypeNodeAliveRequest:               "Node Alive Request",
	TypeNodeAliveResponse:              "Node Alive Response",
	TypeRedirectionRequest:             "Redirection Request",
	TypeRedirectionResponse:            "Redirection Response",
	TypeCreateRequest:                  "Create PDP Context Request",
	TypeCreateResponse:                 "Create PDP Context Response",
	TypeUpdateRequest:                  "Update PDP Context Request",
	TypeUpdateResponse:                 "Update PDP Context Response",
	TypeDeleteRequest:                  "Delete PDP Context Request",
	TypeDeleteResponse:                 "Delete PDP Context Response",
	TypeInitiateRequest:                "Initiate PDP Context Activation Request",
	TypeInitiateResponse:               "Initiate PDP Context Activation Response",
	TypeDeleteAARequest:                "Delete AA PDP Context Request",
	TypeDeleteAAResponse:               "Delete AA PDP Context Response",
	TypeErrorIndication:                "Error Indication",
	TypePDUNotificationRequest:         "PDU Notification Request",
	TypePDUNotificationResponse:        "PDU Notification Response",
	TypePDUNotificationRejectRequest:   "PDU Notification Reject Request",
	TypePDUNotificationRejectResponse:  "PDU Notification Reject Response",
	TypeSupportedExtensions:            "Supported Extension Headers Notification",
	TypeSendRoutingRequest:             "Send Routeing Information for GPRS Request",
	TypeSendRoutingResponse:            "Send Routeing Information for GPRS Response",
	TypeFailureReportRequest:           "Failure Report Request",
	TypeFailureReportResponse:          "Failure Report Response",
	TypeMSPresentRequest:               "Note MS GPRS Present Request",
	TypeMSPresentResponse:              "Note MS GPRS Present Response",
	TypeIdentificationRequest:          "Identification Request",
	TypeIdentificationResponse:         "Identification Response",
	TypeSGSNContextRequest:             "SGSN Context Request",
	TypeSGSNContextResponse:            "SGSN Context Response",
	TypeSGSNContextAcknowledge:         "SGSN Context Acknowledge",
	TypeRelocationRequest:              "Forward Relocation Request",
	TypeRelocationResponse:             "Forward Relocation Response",
	TypeRelocationComplete:             "Forward Relocation Complete",
	TypeRelocationCancelRequest:        "Relocation Cancel Request",
	TypeRelocationCancelResponse:       "Relocation Cancel Response",
	TypeSRNSContext:                    "Forward SRNS Context",
	TypeRelocationCompleteAcknowledge:  "Forward Relocation Complete Acknowledge",
	TypeSRNSContextAcknowledge:         "Forward SRNS Context Acknowledge",
	TypeUERegistrationRequest:          "UE Registration Query Request",
	TypeUERegistrationResponse:         "UE Registration Query Response",
	TypeRANInformationRelay:            "RAN Information Relay",
	TypeMBMSNotificationRequest:        "MBMS Notification Request",
	TypeMBMSNotificationResponse:       "MBMS Notification Response",
	TypeMBMSNotificationRejectRequest:  "MBMS Notification Reject Request",
	TypeMBMSNotificationRejectResponse: "MBMS Notification Reject Response",
	TypeMBMSCreateRequest:              "Create MBMS Context Request",
	TypeMBMSCreateResponse:             "Create MBMS Context Response",
	TypeMBMSUpdateRequest:              "Update MBMS Context Request",
	TypeMBMSUpdateResponse:             "Update MBMS Context Response",
	TypeMBMSDeleteRequest:              "Delete MBMS Context Request",
	TypeMBMSDeleteResponse:             "Delete MBMS Context Response",
	TypeMBMSRegistrationRequest:        "MBMS Registration Request",
	TypeMBMSRegistrationResponse:       "MBMS Registration Response",
	TypeMBMSDeregistrationRequest:      "MBMS De-Registration Request",
	TypeMBMSDeregistrationResponse:     "MBMS De-Registration Response",
	TypeMBMSSessionStartRequest:        "MBMS Session Start Request",
	TypeMBMSSessionStartResponse:       "MBMS Session Start Response",
	TypeMBMSSessionStopRequest:         "MBMS Session Stop Request",
	TypeMBMSSessionStopResponse:        "MBMS Session Stop Response",
	TypeMBMSSessionUpdateRequest:       "MBMS Session Update Request",
	TypeMBMSSessionUpdateResponse:      "MBMS Session Update Response",
	TypeInfoChangeRequest:              "MS Info Change Notification Request",
	TypeInfoChangeResponse:             "MS Info Change Notification Response",
	TypeDataRecordRequest:              "Data Record Transfer Request",
	TypeDataRecordResponse:             "Data Record Transfer Response",
	TypeTunnelStatus:                   "Tunnel Status",
	TypeEndMarker:                      "End Marker",
	TypeGPDU:                           "G-PDU",
}

// String returns the name of the message.
func (t MessageType) String() string {
	if name := messageNames[t]; name != "" {
		return name
	}
	return "unknown message"
}

// Known reports whether a standard names the type.
func (t MessageType) Known() bool { return messageNames[t] != "" }

// Response returns the type of the response that a request gets. ok is false if t is no
// request. Each response follows its request but those of the Forward messages.
func (t MessageType) Response() (r MessageType, ok bool) {
	switch t {
	case TypeRelocationComplete:
		return TypeRelocationCompleteAcknowledge, true
	case TypeSRNSContext:
		return TypeSRNSContextAcknowledge, true
	case TypeEchoRequest, TypeNodeAliveRequest, TypeRedirectionRequest, TypeCreateRequest, TypeUpdateRequest,
		TypeDeleteRequest, TypeInitiateRequest, TypeDeleteAARequest, TypePDUNotificationRequest,
		TypePDUNotificationRejectRequest, TypeSendRoutingRequest, TypeFailureReportRequest, TypeMSPresentRequest,
		TypeIdentificationRequest, TypeSGSNContextRequest, TypeRelocationRequest, TypeRelocationCancelRequest,
		TypeUERegistrationRequest, TypeMBMSNotificationRequest, TypeMBMSNotificationRejectRequest,
		TypeMBMSCreateRequest, TypeMBMSUpdateRequest, TypeMBMSDeleteRequest, TypeMBMSRegistrationRequest,
		TypeMBMSDeregistrationRequest, TypeMBMSSessionStartRequest, TypeMBMSSessionStopRequest,
		TypeMBMSSessionUpdateRequest, TypeInfoChangeRequest, TypeDataRecordRequest:
		return t + 1, true
	}
	return 0, false
}

// Path reports whether messages of the type belong to the path between two nodes and to
// no tunnel: their TEID, or TID and flow label, is zero (TS 29.060 section 7.2).
func (t MessageType) Path() bool {
	return t <= TypeRedirectionResponse || t == TypeSupportedExtensions
}
