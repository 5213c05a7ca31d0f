#include "bench/evidence/compact.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongText = 12, kOften = 3;  // bytes and uses of a string that `texts` takes
constexpr size_t kLargest = size_t{1} << 28;  // bytes of a whole document, about
constexpr size_t kMostSteps = 8;              // of a path

bool has_form(const Json& value) {
  return value.is_object() && !value.empty() &&
         std::none_of(value.items().begin(), value.items().end(),
                      [](const auto& item) { return item.key().find('/') != std::string::npos; });
}

struct Leaf {
  std::string path;
  const Json* value;
};

// The members of an object by path; objects in it are opened where no name has a slash.
void add_leaves(const Json& object, const std::string& before, std::vector<Leaf>& leaves) {
  for (const auto& [name, member] : object.items()) {
    if (has_form(member)) {
      add_leaves(member, before + name + "/", leaves);
    } else {
      leaves.push_back({before + name, &member});
    }
  }
}

std::vector<Leaf> leaves_of(const Json& object) {
  std::vector<Leaf> leaves;
  if (has_form(object)) add_leaves(object, "", leaves);
  return leaves;
}

class Shortener {
 public:
  Json document(const Json& evidence) {
    count(evidence);
    Json result = evidence;
    for (Json& member : result) member = shortened(member);
    if (!form_list_.empty()) result["forms"] = std::move(form_list_);
    if (!text_list_.empty()) result["texts"] = std::move(text_list_);
    return result;
  }

 private:
  struct Form {
    size_t objects = 0;
    std::vector<const Json*> same;  // by leaf: the value of all objects, or null
    std::string number;
  };
  struct Text {
    size_t uses = 0;
    std::string number;
  };

  Form& form_of(const std::vector<Leaf>& leaves) {
    std::vector<std::string> paths;
    for (const Leaf& leaf : leaves) paths.push_back(leaf.path);
    return forms_[std::move(paths)];
  }

  void count(const Json& value) {
    if (value.is_string()) ++texts_[value.get_ref<const std::string&>()].uses;
    if (!value.is_structured()) return;
    if (const std::vector<Leaf> leaves = leaves_of(value); !leaves.empty()) {
      Form& form = form_of(leaves);
      const bool first = form.objects++ == 0;
      form.same.resize(leaves.size());
      for (size_t i = 0; i < leaves.size(); ++i) {
        const Json& leaf = *leaves[i].value;
        const Json*& same = form.same[i];
        if (first && !leaf.is_structured()) same = &leaf;
        // As text: 1 and 1.0 are not the same.
        if (same != nullptr && (leaf.is_structured() || dump(*same) != dump(leaf))) same = nullptr;
      }
    }
    for (const Json& member : value) count(member);
  }

  static std::string dump(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  Json shortened(const Json& value) {
    if (value.is_string()) return shortened_text(value);
    if (!value.is_structured()) return value;
    const std::vector<Leaf> leaves = leaves_of(value);
    Form* const form = leaves.empty() ? nullptr : &form_of(leaves);
    if (form == nullptr || form->objects < 2) {
      Json result = value;
      for (Json& member : result) member = shortened(member);
      return result;
    }
    if (form->number.empty()) list(*form, leaves);
    Json row = Json::array({form->number});
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (form->same[i] == nullptr) row.push_back(shortened(*leaves[i].value));
    }
    return row;
  }

  Json shortened_text(const Json& value) {
    const auto& text = value.get_ref<const std::string&>();
    Text& found = texts_[text];
    const bool listed = (found.uses >= kOften && text.size() > kLongText) ||
                        text.starts_with('@') || text.starts_with('#');
    if (!listed) return value;
    if (found.number.empty()) {
      found.number = fmt::format("@{}", text_list_.size());
      text_list_[found.number] = text;
    }
    return found.number;
  }

  void list(Form& form, const std::vector<Leaf>& leaves) {
    form.number = fmt::format("#{}", form_list_.size());
    Json entries = Json::array({form.number});
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Json* const same = form.same[i];
      entries.push_back(same != nullptr ? Json::array({leaves[i].path, *same})
                                        : Json(leaves[i].path));
    }
    form_list_.push_back(std::move(entries));
  }

  std::map<std::vector<std::string>, Form> forms_;
  std::map<std::string, Text> texts_;
  Json form_list_ = Json::array(), text_list_ = Json::object();
};

class Opener {
 public:
  Result<Json> document(Json compact) {
    if (!compact.is_object()) return compact;
    for (const Json& form : taken(compact, "forms")) {
      if (!form.is_array() || form.empty() || !form[0].is_string()) return wrong("form", form);
      std::vector<Entry>& entries = forms_[form[0].get<std::string>()];
      for (size_t i = 1; i < form.size(); ++i) {
        const bool fixed = form[i].is_array() && form[i].size() == 2;
        const Json& path = fixed ? form[i][0] : form[i];
        if (!path.is_string()) return wrong("path", path);
        entries.push_back({steps_of(path.get<std::string>()), fixed ? form[i][1] : Json(), fixed,
                           form[i].dump().size()});
        if (entries.back().path.size() > kMostSteps) return wrong("path", path);
      }
    }
    texts_ = taken(compact, "texts");
    Json result = opened(std::move(compact));
    if (!error_.ok()) return error_;
    return result;
  }

 private:
  struct Entry {
    std::vector<std::string> path;
    Json value;  // of all objects, if it is fixed
    bool fixed;
    size_t bytes;
  };

  static Json taken(Json& document, const char* name) {
    Json value = document.value(name, Json());
    document.erase(name);
    return value;
  }

  static std::vector<std::string> steps_of(const std::string& path) {
    std::vector<std::string> steps;
    std::istringstream text(path);
    for (std::string step; std::getline(text, step, '/');) steps.push_back(step);
    return steps;
  }

  static Status wrong(const char* what, const Json& value) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return invalid("'{}' is no {} of this file, wanted the compact form of evidence",
                   printable(text.substr(0, 80)), what);
  }

  // Adds to the size of the result, which a small file could make endless.
  bool grows(size_t bytes) {
    size_ += bytes;
    if (size_ > kLargest && error_.ok()) {
      error_ = invalid("forms and texts: make more than {} bytes, wanted fewer", kLargest);
    }
    return error_.ok();
  }

  Json opened(Json value) {
    if (!error_.ok()) return value;
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (!text.starts_with('@')) return value;
      const auto found = texts_.find(text);
      if (found != texts_.end() && found->is_string() && grows(found->dump().size())) return *found;
      if (error_.ok()) error_ = wrong("text", value);
    } else if (value.is_array() && !value.empty() && value[0].is_string() &&
               value[0].get_ref<const std::string&>().starts_with('#')) {
      Json object = Json::object();
      if (!open_row(value, object) && error_.ok()) error_ = wrong("row", value);
      return object;
    } else if (value.is_structured()) {
      for (Json& member : value) member = opened(std::move(member));
    }
    return value;
  }

  // Moves the values of a row to the object that it stands for; false if they do not fit its form.
  bool open_row(Json& row, Json& object) {
    const auto form = forms_.find(row[0].get<std::string>());
    if (form == forms_.end()) return false;
    size_t next = 1;
    for (const Entry& entry : form->second) {
      if (!grows(entry.bytes) || (!entry.fixed && next == row.size())) return false;
      Json* place = &object;
      for (const std::string& name : entry.path) {
        if (!place->is_object() && !place->is_null()) return false;
        place = &(*place)[name];
      }
      *place = entry.fixed ? entry.value : opened(std::move(row[next++]));
    }
    return next == row.size();
  }

  std::map<std::string, std::vector<Entry>> forms_;
  Json texts_;
  size_t size_ = 0;
  Status error_;
};

}  // namespace

Json compact(const Json& evidence) { return Shortener().document(evidence); }

Result<Json> whole(Json document) { return Opener().document(std::move(document)); }

}  // namespace flashcore::bench
