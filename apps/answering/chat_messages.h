// Messages of a conversation, as a chat template reads them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::apps {

// A list of at least one object with a role and a content: a text, null for none, or OpenAI's list
// of parts, whose texts are joined. Other entries of a message stay. name: of the list, for errors.
// Throws DataError.
nlohmann::ordered_json chat_messages(const nlohmann::ordered_json& value, const std::string& name);

}  // namespace tandem::apps
