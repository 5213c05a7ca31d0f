# decode_sm90's compiled kernels: one for each row of kConfigs (config.hpp) and type of Q.
# instances.cpp makes the list of them a table.
set(decode90_configs 12)
set(decode90_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/decode_sm90/stream_kv)
set(decode90_declarations "")
set(decode90_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
math(EXPR decode90_last_config "${decode90_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${decode90_last_config})
    string(TOLOWER "decode90_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${decode90_generated}/${INSTANCE_NAME}.cu)
    configure_file(decode_sm90/stream_kv/instance.cu.in ${source} @ONLY)
    math(EXPR group "${INSTANCE_CONFIG} / 4")
    flashcore_cuda_sources(decode_sm90 LISTED GROUP ${type_${INSTANCE_ELEMENT}}_group${group} SOURCES ${source})
    if(flashcore_cuda_compiled)
      string(APPEND decode90_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
      string(APPEND decode90_entries
        "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}}, ${INSTANCE_NAME}()},\n")
    endif()
  endforeach()
endforeach()
configure_file(decode_sm90/stream_kv/instance_list.hpp.in ${decode90_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(decode_sm90 SOURCES decode_sm90/stream_kv/join.cu)
target_sources(flashcore_objects PRIVATE decode_sm90/stream_kv/instances.cpp)
set_source_files_properties(decode_sm90/stream_kv/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${decode90_generated})
